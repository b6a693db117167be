"""A module imports only from the layers above its own in the list of ARCHITECTURE.md."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "soft_reasoning"

LAYERS = (
    "checks types thoughts answers demo prompts engine schedule search judge task method objective "
    "questions configuration solution reasoner serve lab cli run"
).split()
LAB = ("data", "runs", "reports")
RUNS = "soft_reasoning.lab.runs"
READ = {f"{RUNS}.files", f"{RUNS}.manifest", f"{RUNS}.naming", f"{RUNS}.records"}
"""What reports know of runs: names and readers of files, configurations, records."""
HYDRA = {"hydra", "hydra_zen", "omegaconf"}
SHARED = {"base", "rounds"}
"""What several methods are made of."""
SEARCH_ALONE = {"torch", "scipy", "gpytorch", "botorch", "linear_operator", "soft_reasoning"}


def layer(module: str) -> str:
    return module.split(".")[1]


def imports():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if len(parts) == 2 and parts[1] == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
                if node.module == "soft_reasoning":
                    names = [f"soft_reasoning.{alias.name}" for alias in node.names]
                for name in names:
                    yield ".".join(parts), name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield ".".join(parts), alias.name


def test_imports_go_up_the_list():
    upward = []
    for importer, imported in imports():
        if imported.startswith("soft_reasoning."):
            low, high = layer(imported), layer(importer)
            if LAYERS.index(low) > LAYERS.index(high):
                upward.append(f"{importer} -> {imported}")
    assert not upward


def test_the_search_knows_no_language_model():
    import sys

    for importer, imported in imports():
        if layer(importer) == "search":
            root = imported.split(".")[0]
            assert root in SEARCH_ALONE or root in sys.stdlib_module_names, f"{importer} imports {imported}"
            internal = imported.startswith("soft_reasoning.")
            assert not internal or layer(imported) in ("search", "checks", "types"), (
                f"{importer} imports {imported}"
            )


def test_the_search_uses_no_request_prompt_or_completion():
    """Of the types it uses errors and random streams."""
    for path in sorted((PACKAGE / "search").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "soft_reasoning.types":
                assert {alias.name for alias in node.names} <= {"UserError", "generator_for"}, path.name


def test_methods_do_not_import_each_other():
    for importer, imported in imports():
        if importer.startswith("soft_reasoning.method.") and imported.startswith("soft_reasoning.method."):
            assert imported.rpartition(".")[2] in SHARED, importer


def test_the_laboratory_reads_rows_runs_them_and_reports_on_what_was_written():
    for importer, imported in imports():
        if importer.startswith("soft_reasoning.lab.") and imported.startswith("soft_reasoning.lab."):
            low, high = imported.split(".")[2], importer.split(".")[2]
            assert LAB.index(low) <= LAB.index(high), f"{importer} imports {imported}"
            if (low, high) == ("runs", "reports"):
                assert imported in READ, f"{importer} imports {imported}"


def test_hydra_is_the_command_line_s():
    """A store of a run keeps Hydra's own record of it."""
    importers = {importer for importer, imported in imports() if imported.split(".")[0] in HYDRA}
    assert {i for i in importers if layer(i) != "cli"} <= {f"{RUNS}.store"}
