"""experiments/verifier_accuracy.py: a hand-computed table, and a whole run on the fake engine."""

import json
import re

import pytest

from experiments import verifier_accuracy as script
from soft_reasoning.engines.fake import FakeEngine
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.search.stopping import Stopping


@pytest.fixture
def folder(tmp_path):
    """Two problems of two rounds: the verifier is right about the first and wrong about the second."""
    problems = {"a": (["1", "2", "2", "2", "2"], ["1", "2", "2", "2", "2"]), "b": (["3"] * 5, ["9"] * 5)}
    for name, answers in problems.items():
        rounds = [[[float(a in "19") for a in answers_], [], [], [], 7] for answers_ in answers]
        rows = [
            {"text": a, "answer": a, "round": number, "coherence": 0.5, "u": None, "generated_tokens": 10}
            | dict.fromkeys(script.CERTAINTIES, 0.5)
            for number, answers_ in enumerate(answers)
            for a in answers_
        ]
        facts = {"id": name, "question": "?", "gold": {"a": "1", "b": "3"}[name], "type": "number"}
        for file, row in (
            ("candidates", facts | {"candidates": rows}),
            ("single_judge", {"id": name, "rounds": rounds}),
        ):
            with (tmp_path / f"{file}.jsonl").open("a") as out:
                out.write(json.dumps(row) + "\n")
    return tmp_path


def test_replaying_verdicts(folder):
    run = script.Run(folder, "single_judge")
    by_vote, by_reward = run.replay(FinalAnswer("vote")), run.replay(FinalAnswer("reward_vote"))
    assert [row.right for row in by_vote] == [False, True]
    assert [row.right for row in by_reward] == [True, False]
    assert [row.tokens for row in by_reward] == [114, 114] and all(row.covered for row in by_reward)
    # right: 2 of 7 are approved; wrong: the 5 of b's second round, of 13
    assert script.approved(by_reward, True) == pytest.approx(200 / 7)
    assert script.approved(by_reward, False) == pytest.approx(500 / 13)
    stopped = run.replay(FinalAnswer("reward_vote"), Stopping(rounds=0))
    assert [row.tokens for row in stopped] == [57, 57] and len(stopped[0].marks) == 5


def test_a_blind_verifier_is_the_same_every_time(folder):
    first, again = (script.Run(folder, "at random").problems for _ in range(2))
    assert first == again


@pytest.mark.slow
def test_on_the_fake_engine(tmp_path, monkeypatch):
    words = ["engine=fake", "limit=3", "max_new_tokens=30", "method=verified_sampling"]
    script.record(tmp_path, words)
    script.judge(tmp_path, ["single_judge", "multi_generate"], words, 2)
    again = (tmp_path / "single_judge.jsonl").read_text()
    script.judge(tmp_path, ["single_judge"], words, 2)
    assert (tmp_path / "single_judge.jsonl").read_text() == again and len(again.splitlines()) == 3
    text = re.sub(" +", " ", script.tables([tmp_path]))
    drawn = (tmp_path / "candidates.jsonl").read_text()
    for file in (
        "candidates",
        "multi_generate",
    ):  # as if they had been interrupted: nothing is generated again
        (tmp_path / f"{file}.jsonl").unlink()
    monkeypatch.delattr(FakeEngine, "advance")
    script.record(tmp_path, words)
    script.judge(tmp_path, ["multi_generate", "single_judge, sequence_prob"], words, 2)
    assert (tmp_path / "candidates.jsonl").read_text() == drawn
    assert "| always yes | 3 | 100.0 | 100.0 |" in text and "| group_confidence |" in text
