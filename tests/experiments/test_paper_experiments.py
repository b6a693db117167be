"""Every +experiment=paper_... runs, with the fake engine on rows made up in the benchmark's layout."""

import csv
import json
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from soft_reasoning.configuration.folder import conf_dir
from soft_reasoning.reports import report

FILES = sorted(Path(conf_dir(), "experiment").glob("paper_*.yaml"))
ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {"paper_correlation", "paper_neurons"}
"""Those that a script of experiments/ runs, which have tests of their own."""
ONLY = {
    # The 50 projections are as good as two here.
    "paper_reduction": ["embedding.seed=0,1"],
    "paper_baselines": ["method=cot"],
}
SWEPT = ("dataset", "dataset.shots", "model", "seed", "embedding.seed")


@pytest.fixture
def rows(tmp_path):
    asked = [{"question": f"What is {n} and {n} at $5?", "answer": f"#### {2 * n}"} for n in range(4)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in asked), encoding="utf-8")
    return path


def ends(path):
    """Overrides that keep the first and the last value of what the file itself sweeps."""
    params = OmegaConf.load(path).get("hydra", {}).get("sweeper", {}).get("params", {})
    values = {key: str(one).split(",") for key, one in params.items() if key not in SWEPT}
    return [f"{key}={one[0]},{one[-1]}" for key, one in values.items()]


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in FILES if p.stem not in SCRIPTS], ids=lambda p: p.stem)
def test_it_runs_and_makes_its_table(run, tmp_path, rows, monkeypatch, path):
    monkeypatch.setattr(report, "_draw", lambda *_: {})  # each run's own plots take most of the time
    command = path.read_text().splitlines()[1].partition("soft_reasoning.run ")[2].split()
    here = ["dataset=gsm8k", f"dataset.path={rows}", "dataset.shots=1", "seed=0", "limit=2"]
    small = ["engine=fake", "max_new_tokens=12", "model=llama3_8b", "progress=false"]
    done = run(*command, *here, *small, *ends(path), *ONLY.get(path.stem, []))
    assert done.returncode == 0, done.stderr
    if "-m" not in command:
        assert list(tmp_path.glob("runs/*/report.md"))
        return
    [folder] = tmp_path.glob("runs/sweep-*")
    table = list(csv.reader((folder / "sweep.csv").read_text(encoding="utf-8").splitlines()))
    assert len(table) > 1 and (folder / "sweep.tex").exists() and (folder / "sweep.pdf").exists()
    assert (folder / "rounds.csv").exists() or "search.rounds=0" in path.read_text()


def test_every_file_is_listed():
    text = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in FILES if not re.search(rf"\b{path.stem}\b", text)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_problems_are_drawn_by_the_seed_and_prompts_are_plain(path):
    from soft_reasoning.configuration.compose import compose_config

    config = compose_config([f"+experiment={path.stem}"])
    assert (config.dataset.sample, config.prompt.layout, config.limit) == ("random", "completion", 200)
