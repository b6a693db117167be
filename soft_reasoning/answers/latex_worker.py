"""The process behind :mod:`soft_reasoning.answers.algebra`.

It is sent ``(function, texts)`` and sends the result. It runs as a script so that it loads math-verify and
nothing of this package. Its argument is the file descriptor of the connection.
"""

import logging
import resource
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

MEMORY = 4 * 2**30
"""Bytes of address space; a tower of powers ends in MemoryError, not in the machine's swap."""


def main(connection: Connection) -> None:
    """Answer questions until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; the end of the connection ends us
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import math_verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that the clock is the parent's

    def parse(text: str) -> list:
        return math_verify.parse(text, parsing_timeout=0)

    def verify(gold: list, answer: list) -> bool:
        return math_verify.verify(gold, answer, timeout_seconds=None)

    def same(a: str, b: str) -> bool:
        """Whether two formulas mean the same."""
        first, second = parse(f"\\boxed{{{a}}}"), parse(f"\\boxed{{{b}}}")
        return verify(first, second) or verify(second, first)

    def verified(gold: str, answer: str) -> bool:
        """Whether Math-Verify accepts an answer."""
        return verify(parse(gold), parse(answer))

    def parsed(text: str) -> str | None:
        """The shortest form that parses to what ``text`` parses to; its last string where none does."""
        found = parse(text)
        if not found:
            return None
        last = str(found[-1])
        for form in (last, f"${last}$", f"{last}%", f"${last}\\%$", str(found[0]), f"${found[0]}$"):
            if parse(form)[:1] == found[:1]:
                return form
        return last

    functions = {"same": same, "verified": verified, "parsed": parsed}
    connection.send("ready")
    with suppress(EOFError):
        while True:
            function, texts = connection.recv()
            try:
                result = functions[function](*texts)
            except (MemoryError, RecursionError):
                result = None
            connection.send(result)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
