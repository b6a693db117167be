"""The learned final rule: what it learns from seeded data, its file, and whom it is refused."""

import json
import random
from dataclasses import asdict

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.rewards.estimates import Judged
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.learned import FEATURES, LearnedRule, fit
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.types import Candidate, Problem, UserError


def rows(count, seed):
    """Questions whose majority is often wrong and whose coherence tells which answer is right."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        answers = [rng.choice("0112") for _ in range(10)]
        seen = [
            Candidate("", a, i // 5, coherence=rng.gauss(a == "0", 0.5), verified=1.0)
            for i, a in enumerate(answers)
        ]
        made.append((Problem(str(number), "?", "0"), Judged(seen, [Verdict(())], Grader())))
    return made


def test_it_learns_what_tells_right_from_wrong_and_is_measured_on_other_problems(tmp_path):
    rule, right = fit(rows(200, 0), {"model": "m"})
    assert right > 0.8 and rule.weights[FEATURES.index("coherence")] > 0
    file = tmp_path / "portfolio.json"
    file.write_text(json.dumps({"final": asdict(rule)}))
    learned, vote = FinalAnswer("learned", prior=str(file)), FinalAnswer("vote")
    others = rows(200, 1)
    solved = [sum(f.choose(judged) == "0" for _, judged in others) for f in (learned, vote)]
    assert solved[0] > 150 > 100 > solved[1]
    assert 0 < learned.leader(others[0][1]) < 1


def test_random_labels_are_not_learned():
    rng = random.Random(2)
    shuffled = [(Problem(p.id, "?", rng.choice("012")), judged) for p, judged in rows(200, 3)]
    assert fit(shuffled, {})[1] < 0.6


@pytest.mark.parametrize("content", ["{}", "no", '{"final": {"means": [1]}}'])
def test_a_file_without_a_rule_is_refused(tmp_path, content):
    (tmp_path / "file").write_text(content)
    with pytest.raises(UserError, match="final.prior: expected a file"):
        LearnedRule.load(str(tmp_path / "file"))
    with pytest.raises(UserError, match="got none; set search.prior"):
        FinalAnswer("learned")


def test_one_kind_of_answers_teaches_nothing():
    with pytest.raises(UserError, match="right and wrong answers"):
        fit([(Problem("p", "?", "0"), Judged([Candidate("", "0", 0)], [], Grader()))] * 5, {})
