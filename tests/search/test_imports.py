"""The search imports torch, GPyTorch, BoTorch and the types, and no language model."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import soft_reasoning.search

ALLOWED = {"torch", "gpytorch", "botorch", "linear_operator"} | set(sys.stdlib_module_names)


def test_imports():
    files = sorted(Path(soft_reasoning.search.__file__).parent.glob("*.py"))
    assert len(files) > 8
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                inside = name == "soft_reasoning.types" or name.startswith("soft_reasoning.search")
                assert inside or name.split(".")[0] in ALLOWED, f"{file.name} imports {name}"
