"""The process behind :mod:`soft_reasoning.answers.algebra`: one JSON question in, one line out.

``{"a", "b"}`` asks whether two formulas mean the same (``1`` or ``0``), ``{"gold", "answer"}`` whether
Math-Verify accepts an answer, and ``{"read"}`` what it parses in a text (a JSON string or ``null``). It
runs as a script so that it loads math-verify and nothing of this package.
"""

import json
import logging
import resource
import signal
import sys

MEMORY = 4 * 2**30
"""Bytes of address space; a tower of powers ends in MemoryError, not in the machine's swap."""


def main() -> None:
    """Answer questions from standard input until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; the end of our input ends us
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import math_verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that the clock is ours

    # The parent holds the clock: math-verify's own timeouts need signals and the main thread.
    def parse(text: str) -> list:
        return math_verify.parse(text, parsing_timeout=0)

    def verify(gold: list, answer: list) -> bool:
        return math_verify.verify(gold, answer, timeout_seconds=None)

    def same(a: str, b: str) -> bool:
        first, second = parse(f"\\boxed{{{a}}}"), parse(f"\\boxed{{{b}}}")
        return verify(first, second) or verify(second, first)

    def read(text: str) -> str | None:
        """The shortest form that parses to what ``text`` parses to; its last string where none does."""
        found = parse(text)
        if not found:
            return None
        last = str(found[-1])
        for form in (last, f"${last}$", f"{last}%", f"${last}\\%$", str(found[0]), f"${found[0]}$"):
            if parse(form)[:1] == found[:1]:
                return form
        return last

    def answer(question: dict[str, str]) -> str:
        if "read" in question:
            return json.dumps(read(question["read"]))
        if "gold" in question:
            return str(int(verify(parse(question["gold"]), parse(question["answer"]))))
        return str(int(same(question["a"], question["b"])))

    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            said = answer(question)
        except (MemoryError, RecursionError):
            said = "null" if "read" in question else "0"
        print(said, flush=True)


if __name__ == "__main__":
    main()
