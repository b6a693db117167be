"""Names of runs: the labels of a comparison's methods, and folders."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, cast

from soft_reasoning.lab.runs.manifest import URL
from soft_reasoning.types import UserError

_WORDS = re.compile(r",(?=[~+@/\w.]+=)")
"""The comma between two overrides."""
_FOLDERS = re.compile(r"(?<==).*/(?=[^/])")
"""All components of a path but the last."""


def typed_keys(words: Iterable[str]) -> list[str]:
    """Return the keys of options, such as ``verifier.samples`` of ``+verifier.samples=3``."""
    return [word.lstrip("+~").partition("=")[0] for word in words]


def compared_methods(methods: Any, budget: str) -> dict[str, list[str]]:
    """Return the options of each entry of ``methods`` by its label, in order; empty if it is None.

    The first option is the method. Null entries are left out (``${when:${dataset.shots},rap}`` is null
    without exemplars), and so is what is repeated. Under ``budget=equal`` labels leave out the number of
    samples; of methods that differ only in that number the first is used.

    Raises:
        UserError: Unless it is a list of names, or of lists of a name and options.
    """
    if methods is None:
        return {}
    expected = "methods: expected a list such as [cot,[self_consistency,'k=20']]"
    if not isinstance(methods, list) or not methods:
        raise UserError(f"{expected}, got {methods}")
    compared: dict[str, list[str]] = {}
    for entry in (entry for entry in cast(list[Any], methods) if entry is not None):
        name, *words = cast(list[Any], entry) if isinstance(entry, list) and entry else [entry]
        if not isinstance(name, str) or not all(isinstance(word, str) and "=" in word for word in words):
            raise UserError(f"{expected}, got {entry} in it")
        changes = [str(word) for word in words]
        if any(key in ("limit", "seed") or key.startswith("dataset") for key in typed_keys(changes)):
            raise UserError(f"methods: expected one seed and data set for all, got {entry} in the list")
        if budget == "equal" and "method.samples" in typed_keys(changes):
            raise UserError(
                f"methods: expected the number of samples as k under budget=equal, got {entry} in the list; "
                "use k=NUMBER"
            )
        compared.setdefault(label_of([name, *changes], budget), [f"method={name}", *changes])
    return compared


def label_of(words: Iterable[str], budget: str) -> str:
    """Return ``words`` as a label, in which ``budget=equal`` leaves out the number of samples."""
    return " ".join(word for word in words if budget != "equal" or not word.startswith("k="))


def run_name(*parts: str) -> str:
    """Return the folder name for ``parts``, the last of which may be options; equal parts get equal names.

    ``limit=5,seed=1`` becomes ``limit_5-seed_1``, which shells and addresses of pages take as it is. Options
    that the other parts name already are left out. A data set in a file has the file's name. Paths keep their
    last component. Long and unusual names, and names with shortened paths, end in a hash.
    """
    texts = [URL.sub("URL", str(part)) for part in parts if part]
    named = {f"{group}={text}" for text in texts for group in ("dataset", "method")}
    words = [word for text in texts for word in _WORDS.split(text) if word not in named]
    if words[:1] == ["custom"] and (files := [word for word in words if word.startswith("dataset=")]):
        words.remove(files[0])
        words[0] = files[0].rpartition(".")[0]
    name, short = ("-".join(group) for group in (words, [_FOLDERS.sub("", word) for word in words]))
    name, short = name.removeprefix("dataset="), short.removeprefix("dataset=")
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", re.sub(r"[+']", "", short))
    if plain == re.sub("[=,]", "_", name.replace("+", "")) and len(plain) <= 120:
        return plain
    return f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
