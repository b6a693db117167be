"""The process behind :mod:`soft_reasoning.answers.algebra`: JSON questions in, a line ``1`` or ``0`` each out.

Run as a script, so that it loads math-verify and none of this package.
"""

import json
import logging
import resource
import sys

MEMORY = 4 * 2**30
"""Bytes of address space; a tower of powers ends in MemoryError, not in the machine's swap."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that the clock is ours

    def same(a: str, b: str) -> bool:
        # The parent holds the clock: math-verify's own timeouts need signals and the main thread.
        a, b = (parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (a, b))
        return verify(a, b, timeout_seconds=None) or verify(b, a, timeout_seconds=None)

    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = same(question["a"], question["b"])
        except (MemoryError, RecursionError):
            answer = False
        print(int(answer), flush=True)


if __name__ == "__main__":
    main()
