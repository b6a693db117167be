"""Every paper_... on ten problems of the bundled model, and every sweep."""

import csv
import re
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from experiments.paper import placement
from soft_reasoning.cli.compose import compose_config, methods_of
from soft_reasoning.configuration.data import conf_dir

FILES = sorted(Path(conf_dir(), "experiment").glob("paper_*.yaml"))
SWEEPS = sorted(Path(conf_dir(), "experiment").glob("sweep_*.yaml"))
ROOT = Path(__file__).resolve().parents[2]
ONLY = {"paper_reduction": ["embedding.seed=0,1"]}
"""The 50 projections are as good as two here."""
TWICE = {"paper_exp_main_full", "paper_exp_coverage_full", "paper_70b"}
"""The runs of another table again."""
SWEPT = ("dataset", "dataset.shots", "model", "seed", "embedding.seed")


def ends(path):
    """Overrides that keep the first and the last value of what the file itself sweeps."""
    params = OmegaConf.load(path).get("hydra", {}).get("sweeper", {}).get("params", {})
    swept = {key: str(values).split(",") for key, values in params.items() if key not in SWEPT}
    return [f"{key}={values[0]},{values[-1]}" for key, values in swept.items()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [p for p in FILES + SWEEPS if p.stem != "paper_neurons"], ids=lambda p: p.stem
)
def test_it_runs_and_makes_its_table(run, tmp_path, monkeypatch, path):
    command = path.read_text().splitlines()[1].partition("soft_reasoning.run ")[2].split()
    limit = "limit=2" if path.stem in TWICE or path in SWEEPS else "limit=10"
    small = ["model=demo", "dataset=demo", "dataset.shots=0", "seed=0", limit, "progress=false"]
    done = run(*command, *small, *ends(path), *ONLY.get(path.stem, []))
    assert done.returncode == 0, done.stderr
    if "-m" not in command:
        assert list(tmp_path.glob("runs/*/report.md"))
        return
    [folder] = tmp_path.glob("runs/sweep-*")
    table = list(csv.reader((folder / "sweep.csv").read_text(encoding="utf-8").splitlines()))
    assert len(table) > 1 and (folder / "sweep.tex").exists() and (folder / "sweep.pdf").exists()
    assert (folder / "rounds.csv").exists() or "rounds=0" in path.read_text()
    if path in SWEEPS:
        return
    verdicts = any("verifier's accuracy" in cell for row in table for cell in row)
    assert verdicts == (path.stem in ("paper_llama_binary_verifier", "paper_llama_verifier_updated"))


@pytest.mark.parametrize("name", ["paper_main_result", "paper_exp_main_full", "paper_70b"])
def test_tree_search_is_not_run_without_exemplars(name):
    configs = (compose_config([f"+experiment={name}", f"dataset.shots={shots}"]) for shots in (8, 0))
    few, zero = map(methods_of, configs)
    assert set(few) - set(zero) == {"rap"} and not set(zero) - set(few)


def test_every_file_is_listed():
    text = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in FILES if not re.search(rf"\b{path.stem}\b", text)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_problems_are_drawn_once_and_prompts_are_plain(path):
    config = compose_config([f"+experiment={path.stem}"])
    assert (config.dataset.sample, config.prompt.layout, config.limit) == ("random", "completion", 200)


def test_placement_prints_what_it_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(placement, "FAMILIES", ("gpt2",))
    monkeypatch.setattr(sys, "argv", ["placement", "--out", str(tmp_path)])
    placement.main()
    printed, written = capsys.readouterr().out, (tmp_path / "placement.md").read_text(encoding="utf-8")
    for line in ("bundled", "gpt2, random"):
        [shown] = [row.split() for row in printed.splitlines() if row.startswith(line)]
        [kept] = [row.split() for row in written.splitlines() if row.startswith(f"| {line}")]
        assert shown == [word for word in kept if word != "|"]
