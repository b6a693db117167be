"""Runs that take completions from a store: killed anywhere and continued, at once, and with other parts."""

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.engine.completions import CompletionStore, StoreFile, replaying
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.lab.runs.records import read_records
from tests.lab.runs.killed import main as run_here
from tests.lab.runs.world import kept

ROOT = Path(__file__).parents[3]
QUESTION = "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"


def process(folder, *options, at=("", 0)):
    command = [sys.executable, "-m", "tests.lab.runs.killed", str(folder), json.dumps(options), *map(str, at)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def stored(folder):
    """Keys of the store in ``folder``."""
    with closing(CompletionStore(folder / "completions.sqlite", 1.0)) as store:
        return {key for [key] in store._db.execute("SELECT key FROM completions")}


@pytest.fixture
def generated(monkeypatch):
    """The keys of what engines generate, with how often."""
    counts, keep = Counter(), CompletionStore.keep

    def counted(self, completions):
        counts.update(completions.keys())
        keep(self, completions)

    monkeypatch.setattr(CompletionStore, "keep", counted)
    return counts


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing ended."""
    folder = tmp_path_factory.mktemp("whole")
    run_here(folder, [])
    return folder


MORE = [pytest.param(at, marks=pytest.mark.slow) for at in (("step", 60), ("computed", 65), ("stored", 9))]


@pytest.mark.parametrize("at", [("writing", 12), *MORE])
def test_killed_anywhere_and_continued_generates_no_stored_completion_again(whole, tmp_path, generated, at):
    died = process(tmp_path, at=at)
    assert died.communicate()[1] is not None and died.returncode == -signal.SIGKILL
    before, done = stored(tmp_path), len(kept(tmp_path))
    assert done < 8 and len(before) > 10
    run_here(tmp_path, [])
    assert not before & generated.keys() and max(generated.values()) == 1
    assert kept(tmp_path) == kept(whole)
    replayed = sum(used.replayed_tokens for r in read_records(tmp_path) for used in r.result.usage.values())
    assert replayed > 0
    results, expected = (json.loads((f / "results.json").read_text()) for f in (tmp_path, whole))
    assert results["tokens"]["total"].pop("replayed") == replayed
    assert expected["tokens"]["total"].pop("replayed") == 0
    assert results["tokens"]["total"] == expected["tokens"]["total"]


@pytest.mark.slow
def test_two_processes_share_a_store(whole, tmp_path, generated):
    shared = f"cache={tmp_path / 'shared'}"
    both = [process(tmp_path / name, shared) for name in ("a", "b")]
    for one in both:
        assert one.communicate()[1] is not None and one.returncode == 0
    run_here(tmp_path / "c", [shared])
    assert not generated  # the third finds everything
    assert not (tmp_path / "a" / "completions.sqlite").exists()
    for name in "abc":
        assert kept(tmp_path / name) == kept(whole)
    tokens = json.loads((tmp_path / "c" / "results.json").read_text())["tokens"]["total"]
    assert tokens["replayed"] == tokens["generated"] > 0


SAMPLED = ("method=verified_sampling", "stopping=none", "rounds=2", "preset=default")
CHANGES = {
    "reward": (("reward.coherence_weight=0.1",), ()),
    "another verifier": (("verifier=probability",), ("verifier",)),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The folder of a run, whose completions serve the next."""
    folder = tmp_path_factory.mktemp("judged")
    run_here(folder, SAMPLED)
    return folder


@pytest.mark.parametrize("change", CHANGES)
def test_other_rules_on_the_same_candidates_generate_only_what_they_ask_for(judged, tmp_path, change):
    options, generating = CHANGES[change]
    run_here(tmp_path, [f"cache={judged}", *SAMPLED, *options])
    tokens = json.loads((tmp_path / "results.json").read_text())["tokens"]
    assert tokens["candidate"]["generated"] > 0
    for role in tokens.keys() - {"total"}:
        assert (tokens[role]["replayed"] == tokens[role]["generated"]) == (role not in generating), role


def test_what_the_option_says(tmp_path, generated, capsys):
    run_here(tmp_path / "none", ["cache=none"], 2)
    assert not (tmp_path / "none" / "completions.sqlite").exists()
    run_here(tmp_path / "run", [], 2)
    assert len(stored(tmp_path / "run")) == len(generated) > 10
    assert "not generated again" not in capsys.readouterr().err
    run_here(tmp_path / "run", [], 3)
    assert "completions.sqlite are not generated again" in capsys.readouterr().err
    first = Counter(generated)
    run_here(tmp_path / "run", [], 3, fresh=True)
    assert all(generated[key] == 2 for key in first)  # starting over generates again
    folder = StoreFile.of("~/a", 1.0).path.parent
    assert folder == Path.home() / "a" and StoreFile.of("run", 1.0) is None is StoreFile.of(None, 1.0, folder)
    for wrong in ("cache=5", "cache_gb=0"):
        with pytest.raises(UserError, match="^cache(_gb)?: expected"):
            compose_config([wrong])


def test_another_machine_does_not_use_the_run_s_store(tmp_path):
    engine = FakeEngine()
    with replaying(StoreFile(tmp_path / "completions.sqlite", 1.0, "elsewhere"), [engine]):
        assert engine.replay is None
    assert not [*tmp_path.iterdir()]


def test_a_reasoner_stores_only_in_a_folder_that_it_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"engine": "fake", "method": "self_consistency", "max_new_tokens": 20}
    solutions = []
    for cache in (None, "kept", tmp_path / "kept"):
        with SoftReasoner.from_pretrained("demo", cache=cache, **options) as reasoner:
            engine = reasoner.context.engine
            assert (engine.replay is None) == (cache is None)
            solutions.append(reasoner.solve(QUESTION))
        assert engine.replay is None
        assert {path.name for path in tmp_path.iterdir()} == ({"kept"} if cache else set())
    assert [solution.total.replayed_tokens for solution in solutions[:2]] == [0, 0]
    assert solutions[2].total.replayed_tokens == solutions[2].generated_tokens > 0
    assert len({solution.answer for solution in solutions}) == 1
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="^cache: expected a folder, got .*file"):
        SoftReasoner.from_pretrained("demo", cache="file", **options)
