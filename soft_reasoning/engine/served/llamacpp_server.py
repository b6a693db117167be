"""A script that runs llama.cpp's server, with ``name=value`` for fields of xllamacpp's CommonParams."""

import signal
import sys
from functools import reduce
from importlib import import_module
from typing import Any


def main(words: list[str]) -> None:
    """Start the server and wait."""
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    for word in words:
        name, _, text = word.partition("=")
        *path, last = name.split(".")
        place = reduce(getattr, path, params)
        kind = type(getattr(place, last))
        setattr(place, last, text == "True" if kind is bool else kind(text))
    server = xllamacpp.Server(params)
    print("listening on", server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
