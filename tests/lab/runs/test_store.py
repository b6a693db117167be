"""The run folder: torn lines, locks, changed configurations, exact numbers."""

import math
import subprocess
import sys
from datetime import date
from decimal import Decimal

import pytest
from omegaconf import OmegaConf

from soft_reasoning.answers import Grader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.lab.runs.files import MANIFEST, read_json
from soft_reasoning.lab.runs.records import Record, read_records
from soft_reasoning.types import Candidate, Problem, Result, Usage, UserError
from tests.lab.runs.world import opened

CONFIG = {"seed": 0, "search": {"rounds": 4, "candidates": 5}, "progress": True}


def record(name="0", answer="18", **more):
    return Record.new(Problem(name, "How many?", "18"), Result(answer, (), **more), Grader())


def fill(folder, *names, config=CONFIG, **options):
    with opened(folder, config, **options) as store:
        for name in names:
            store.append(record(name))
        return store


def ids(folder):
    return [stored.problem.id for stored in read_records(folder)]


def composed(*overrides):
    return OmegaConf.to_container(compose_config(overrides), resolve=True)


def test_records_come_back_in_order_and_floats_to_the_last_bit(tmp_path):
    values = [0.1 + 0.2, 1 / 3, 5e-324, -0.0, 1e308, math.pi]
    text = "“½ – 答え \u2028 \ud800"
    with opened(tmp_path, CONFIG) as store:
        store.append(record("a", text, trace=({"rewards": values},)))
        [stored] = read_records(tmp_path)  # on the disk at once
    assert list(map(float.hex, stored.result.trace[0]["rewards"])) == list(map(float.hex, values))
    assert stored.result.answer == text


def test_values_of_a_row_that_json_lacks_are_kept_as_text(tmp_path):
    """A date or a number of a Parquet file; the question counts all the same."""
    doc = {"when": date(2020, 1, 2), "price": Decimal("1.50"), "picture": b"\x89", "n": 1}
    with opened(tmp_path, CONFIG) as store:
        store.append(Record.new(Problem("a", "How many?", "18", doc=doc), Result("18", ()), Grader()))
    [stored] = read_records(tmp_path)
    assert stored.problem.doc == {"when": "2020-01-02", "price": "1.50", "picture": "b'\\x89'", "n": 1}


def test_a_record_that_was_written_and_read_back_is_equal(tmp_path):
    candidates = (
        Candidate("so 18", "18", 0, 0.1, 1.0, 1 / 3, (0.1, -0.2), 7, "eos", 0.5, "so", token_ids=(1, 2)),
        Candidate("", None, 1, computed=True),
    )
    verifier = {"answers": ["18", None], "weights": [1.0, 0.5], "texts": ["a", "b"], "prompts": ["?", "?"]}
    trace = (
        {"round": 0, "verifier": verifier, "tokens": [[{"nearest": [["so", 0.5]]}]]},
        {"ended": "rounds"},
    )
    usage = {"candidate": Usage(5, 1, 7, 2), "verifier": Usage(9)}
    problem = Problem("a", "How many?", "18", doc={"difficulty": "hard"})
    made = Record.new(problem, Result("18", candidates, trace, usage, ("Ask ", "me"), True), Grader())
    with opened(tmp_path, CONFIG) as store:
        store.append(made)
    [stored] = read_records(tmp_path)
    assert stored == made and stored.problem.doc == problem.doc
    line = made.line()
    assert (line["resps"], line["filtered_resps"], line["exact_match"]) == ([["so 18", ""]], ["18"], 1.0)


def test_cut_anywhere_only_the_last_record_is_lost(tmp_path):
    fill(tmp_path, "a", "b", "c")
    path = tmp_path / "samples.jsonl"
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    notes = [f"{path}: dropped a last line that a crash cut off; that problem runs again"]
    for cut in range(1, len(whole) + 1):
        path.write_bytes(whole[:cut])
        torn = cut not in ends
        assert [note for note in fill(tmp_path).notes if "last line" in note] == notes[:torn]
        assert path.read_bytes() == whole[: max((end for end in ends if end <= cut), default=0)]


def test_a_changed_config_names_every_difference_and_leaves_all_as_it_was(tmp_path):
    fill(tmp_path, "a")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    changed = {"seed": 1, "search": {"rounds": 4}, "progress": True, "extra": "x"}
    with pytest.raises(UserError) as refused:
        opened(tmp_path, changed)
    message = str(refused.value)
    for part in ("seed: 0 -> 1", "search.candidates: 5 -> absent", 'extra: absent -> "x"', "fresh=true"):
        assert part in message
    assert "rounds" not in message and "\n" not in message
    assert before == {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}


def test_a_run_goes_on_with_other_resources(tmp_path):
    fill(tmp_path, "a", config=composed())
    fill(tmp_path, "b", config=composed("engine.max_batch_tokens=4000", "model.device_map=auto"))
    assert ids(tmp_path) == ["a", "b"]
    with pytest.raises(UserError, match="model.dtype"):
        fill(tmp_path, config=composed("model.dtype=float16"))


def test_fresh_starts_over_and_leaves_foreign_files(tmp_path):
    fill(tmp_path, "a")
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "headline.csv").write_text("old")
    fill(tmp_path, "b", config=CONFIG | {"seed": 1}, fresh=True)
    assert ids(tmp_path) == ["b"]
    assert not (tmp_path / "results.json").exists() and (tmp_path / "notes.txt").read_text() == "mine"
    assert not [*(tmp_path / "tables").iterdir()]


HOLD = """
import sys
from pathlib import Path
from tests.lab.runs.world import opened
store = opened(Path(sys.argv[1]), {"seed": 0})
print("locked", flush=True)
sys.stdin.read()
"""


def test_two_processes_are_refused_and_a_dead_one_leaves_no_lock(tmp_path):
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        for fresh in (False, True):
            with pytest.raises(UserError, match="in use by another run"):
                opened(tmp_path, {"seed": 0}, fresh=fresh)
        holder.kill()
    fill(tmp_path, "a", config={"seed": 0})


def test_a_full_disk_lets_the_folder_go(tmp_path):
    with pytest.raises(OSError, match="No space left"), opened(tmp_path, CONFIG) as store:
        (tmp_path / "costs.json.part").symlink_to("/dev/full")
        store.add_costs({"engine": 1.5}, {})
    assert store._samples.closed


def test_the_manifest_says_what_the_run_was_made_with(tmp_path):
    fill(tmp_path, "a", device="cpu", model={"path": "demo"})
    manifest = read_json(tmp_path / MANIFEST)
    assert manifest["config"] == CONFIG
    assert manifest["versions"]["torch"] and manifest["device"] == "cpu"
    store = fill(tmp_path, device="cuda:0", model={"path": "demo"})
    assert 'device: "cpu" -> "cuda:0"' in store.notes[0]
    assert read_json(tmp_path / MANIFEST) == manifest


def test_seconds_add_up_over_starts_and_peaks_do_not(tmp_path):
    for kv in (7, 5):
        with opened(tmp_path, CONFIG) as store:
            store.append(record(str(kv)))
            store.add_costs({"engine": 1.5, "total": 2.0}, {"kv": kv})
    costs = {"seconds": {"engine": 3.0, "total": 4.0}, "peak_bytes": {"kv": 7}}
    assert store.costs == read_json(tmp_path / "costs.json") == costs
    (tmp_path / "costs.json").unlink()
    with pytest.raises(UserError, match="costs.json: .* cannot be read; start over with fresh=true"):
        opened(tmp_path, CONFIG)


def test_the_first_record_of_a_problem_counts(tmp_path):
    """Two runs may write into a folder without locks."""
    with opened(tmp_path, CONFIG) as store:
        for number, name in enumerate("aba"):
            store.append(record(name, str(number)))
    assert {r.problem.id: r.result.answer for r in read_records(tmp_path)} == {"a": "0", "b": "1"}
