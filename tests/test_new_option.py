"""A new option is added by files alone: a class and the YAML that configures it."""

import json

import pytest

CLASS = """
from soft_reasoning.checks import real
from soft_reasoning.judge.verifier import Verdict

class Brief:
    name = "brief"

    def __init__(self, longest=20.0):
        self.longest = real("longest", longest, above=0.0)

    def verify(self, problem, candidates, context, earlier):
        return Verdict(scores=tuple(float(len(one.text) <= self.longest) for one in candidates))
        yield
"""
CHOICE = "_target_: mine_brief.Brief\nlongest: 20.0  # most characters of a good solution\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder of the two files: mine_brief.py and own/verifier/brief.yaml."""
    (tmp_path / "mine_brief.py").write_text(CLASS)
    (tmp_path / "own" / "verifier").mkdir(parents=True)
    (tmp_path / "own" / "verifier" / "brief.yaml").write_text(CHOICE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_new_option_is_typed_checked_and_stored(here, run):
    words = (
        "--config-dir own engine=fake max_new_tokens=8 limit=2 progress=false rounds=0 verifier=brief".split()
    )
    done = run(*words, "verifier.longest=1000", "hydra.run.dir=out")
    assert done.returncode == 0, done.stderr
    record = json.loads((here / "out" / "samples.jsonl").read_text().splitlines()[0])
    assert {candidate["verified"] for candidate in record["candidates"]} == {1.0}
    manifest = json.loads((here / "out" / "manifest.json").read_text())
    assert manifest["choices"]["verifier"] == "brief" and manifest["config"]["verifier"]["longest"] == 1000

    refused = run(*words, "verifier.longest=-1")
    assert refused.returncode == 2
    assert refused.stderr == "soft_reasoning: verifier.longest: expected a finite number above 0, got -1\n"
