"""experiments/paper/page.py: its items are the experiments that there are, and its commands can be typed."""

import shlex
from pathlib import Path

from experiments.paper import page as script
from soft_reasoning.configuration.folder import conf_dir

ELSEWHERE = {
    "paper_setting", "paper_baselines",  # what the others start from
    "paper_exp_coverage_full", "paper_llama_comparison", "paper_computation",  # runs of another item
    "paper_correlation", "paper_neurons",  # scripts
}  # fmt: skip


def test_every_experiment_is_an_item():
    files = {path.stem for path in Path(conf_dir(), "experiment").glob("paper_*.yaml")}
    assert {item.experiment for item in script.ITEMS} == files - ELSEWHERE


def test_commands_survive_a_shell():
    for item in script.ITEMS:
        assert shlex.split(script.quoted(item.changes)) == list(item.changes)
