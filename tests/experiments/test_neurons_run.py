"""experiments/neurons/run.py: a small run on the bundled model, its questions, and what it refuses."""

import csv
import json
import sys

import pytest

from experiments.neurons import run as script
from experiments.neurons.activity import Sample
from soft_reasoning.types import Problem, UserError


def pilot(*shares):
    problems = [Problem(str(i), "?", "1") for i in range(len(shares))]
    samples = [[Sample((1,), (2,), right=j < 10 * share) for j in range(10)] for share in shares]
    return dict(zip((p.id for p in problems), samples, strict=True)), problems


def test_questions_have_right_and_wrong_answers():
    found, problems = pilot(0.0, 0.5, 1.0, 0.2, 0.9, 0.8)
    assert [p.id for p in script.choose(found, problems, 2)] == ["1", "3"]
    with pytest.raises(UserError, match="found none among 2; raise limit"):
        script.choose(*pilot(0.0, 1.0), 5)


@pytest.mark.slow
def test_both_figures_and_the_masking_table(tmp_path, monkeypatch):
    words = ["--questions", "2", "--samples", "25", "--masked", "4", "limit=12", "max_new_tokens=60"]
    monkeypatch.setattr(sys, "argv", ["run.py", *words, "--out", str(tmp_path)])
    script.main()
    names = {path.name for path in tmp_path.iterdir()}
    for name in ("activation_rate", "activation_iterative"):
        assert {f"{name}.png", f"{name}.pdf", f"{name}.csv", f"{name}.tex"} <= names
    rows = list(csv.reader((tmp_path / "masking.csv").read_text().splitlines()))
    assert [row[0] for row in rows[1:7]] == list(script.MASKS) and rows[2][-1] == "13.27"
    for row in json.loads((tmp_path / "neurons.json").read_text()):
        assert set(row["masked"]) == set(script.MASKS) and 0 < row["keys"] <= 0.05 * 10_000
        rounds = row["keys by round"]
        assert len(rounds["soft_reasoning"]) == len(rounds["random_embedding"]) == 5
        initial = [rounds[s][0] for s in ("soft_reasoning", "random_embedding")]
        assert initial[0] == pytest.approx(initial[1])  # both begin with the same points


def test_another_engine_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "engine=fake", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        script.main()
    assert stop.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "expected the engine hf, got FakeEngine; use engine=hf" in last
