"""The process behind :mod:`soft_reasoning.answers.algebra`.

It receives ``(function, texts)`` and sends the result. It runs as a script so that it loads math-verify and
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes the connection
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import math_verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it keeps no timeouts

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
        """The shortest string that parses to the same as ``text``; the last parse where none does."""
        parses = parse(text)
        if not parses:
            return None
        last = str(parses[-1])
        for form in (last, f"${last}$", f"{last}%", f"${last}\\%$", str(parses[0]), f"${parses[0]}$"):
            if parse(form)[:1] == parses[:1]:
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
