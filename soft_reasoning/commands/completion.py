"""Tab completion of the command line from the files of conf/, without the imports that take seconds."""

from __future__ import annotations

import re
from pathlib import Path

SCRIPT = """\
_soft_reasoning() {
    local line=${COMP_LINE:0:$COMP_POINT}
    mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" completion "$line" 2>/dev/null)
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
}
complete -o default -F _soft_reasoning soft-reasoning"""
"""For bash, which breaks words at ``=``, so that a choice is completed without its group."""

HYDRA = ("run", "compare", "calibrate", "serve")
OTHERS = ("regrade", "show", "eval", "completion")


def candidates(line: str) -> list[str]:
    """Return what may complete the last word of a command line."""
    words = line.split()
    word = "" if line[-1:].isspace() else words.pop()
    if len(words) <= 1:
        return [one for one in (*HYDRA, *OTHERS) if one.startswith(word)]
    command = words[1]
    if command == "regrade" and len(words) > 2:
        return _matching(word, ["grader"])
    if command not in HYDRA:
        return []
    found = _matching(word, _groups() + _keys() + (_server_keys() if command == "serve" else []))
    if command == "compare" and "=" not in word:
        found = [one for one in _choices("method") if one.startswith(word)] + found
    return found


def _matching(word: str, keys: list[str]) -> list[str]:
    """The keys, or after ``group=`` its choices, that begin like ``word``."""
    key, equals, begun = word.lstrip("+").partition("=")
    if equals:
        return [one for one in _choices(key) if one.startswith(begun)]
    plus = word[: len(word) - len(word.lstrip("+"))]
    return [f"{plus}{one}=" for one in keys if one.startswith(key)]


def _conf() -> Path:
    package = Path(__file__).resolve().parents[1]
    return next(folder for folder in (package / "conf", package.parent / "conf") if folder.is_dir())


def _groups() -> list[str]:
    return sorted(path.name for path in _conf().iterdir() if path.is_dir())


def _choices(group: str) -> list[str]:
    return sorted(path.stem for path in (_conf() / group).glob("*.yaml") if not path.stem.startswith("_"))


def _server_keys() -> list[str]:
    text = (_conf() / "server" / "default.yaml").read_text(encoding="utf-8")
    own = re.findall(r"^  ([a-z]\w*):", text.partition("hydra:")[0], flags=re.MULTILINE)
    return ["host", "port", *(f"server.{key}" for key in own)]


def _keys() -> list[str]:
    text = (_conf() / "config.yaml").read_text(encoding="utf-8")
    return sorted({*re.findall(r"^(\w+):", text, flags=re.MULTILINE)} - {"defaults", "hydra"})
