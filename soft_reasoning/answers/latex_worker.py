"""The process behind :mod:`soft_reasoning.answers.algebra`.

For each line with two formulas (a JSON list) it writes ``1`` if they mean the same, else ``0``. It runs as a
script so that it loads math-verify and nothing of this package.
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
    def same(a: str, b: str) -> bool:
        first, second = (math_verify.parse(f"\\boxed{{{text}}}", parsing_timeout=0) for text in (a, b))
        pairs = (first, second), (second, first)
        return any(math_verify.verify(*pair, timeout_seconds=None) for pair in pairs)

    print("ready", flush=True)
    for line in sys.stdin:
        try:
            equivalent = same(*json.loads(line))
        except (MemoryError, RecursionError):
            equivalent = False
        print(int(equivalent), flush=True)


if __name__ == "__main__":
    main()
