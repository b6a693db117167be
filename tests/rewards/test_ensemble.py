"""Several judges together: what each part says, what it costs, and a judge that knows nothing."""

import math
from dataclasses import dataclass, replace
from random import Random

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.rewards.ensemble import PARTS, Ensemble, FittedWeights
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.history import SearchHistory
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.scheduling.context import Context
from soft_reasoning.types import Candidate, UserError
from tests.rewards.programs.programming import BROKEN, PROBLEM, RIGHT, WRONG, Programmer, solved

OFF = {f"{part}_weight": 0.0 for part in PARTS}
LOGPROB = math.log(0.9)


@dataclass(frozen=True)
class Told:
    """A verifier that says what it is told, and keeps count."""

    scores: tuple = ()
    answers: tuple = ()
    name: str = "told"

    def verify(self, problem, candidates, context, earlier):
        scores = self.scores[: len(candidates)] or (None,) * len(candidates)
        return Verdict(scores, self.answers, self.answers, (1.0,) * len(self.answers), prompts=self.answers)
        yield


def candidates(*answers, logprobs=(LOGPROB,)):
    return [Candidate(f"Answer: {answer}", answer, 0, logprobs=logprobs) for answer in answers]


def verdict(ensemble, seen, earlier=()):
    """The verdict of an ensemble whose parts generate nothing."""
    steps = ensemble.verify(PROBLEM, seen, Context(None, None, Grader(), 0), earlier)
    with pytest.raises(StopIteration) as stop:
        next(steps)
    return stop.value.value


def only(part, **parts):
    return Ensemble(**{**OFF, f"{part}_weight": 1.0, **parts})


def test_the_texts_agree():
    said = verdict(only("texts"), candidates("15", "15.0", "11", None, "15"))
    assert said.scores == (0.5, 0.5, 0.0, 0.0, 0.5) and said.parts == {"texts": (0.5, 0.5, 0.0, 0.0, 0.5)}
    later = verdict(only("texts"), candidates("11", "15"), [said])
    assert later.parts["texts"] == pytest.approx((1 / 6, 3 / 6)), "candidates of earlier rounds count"
    assert verdict(only("texts"), candidates("15")).scores == (None,), "one text agrees with nobody"


@pytest.mark.parametrize(
    ("repeat", "expected"), [(1.0, (3 / 4, 1 / 4, 0)), (0.0, (1, 1, 0)), (0.5, (1.75 / 1.875, 1 / 1.875, 0))]
)
def test_programs_that_agree_saturate(repeat, expected):
    programs = Told(answers=("15", "15", "11", None, "15"))
    said = verdict(only("programs", programs=programs, repeat_weight=repeat), candidates("15", "11", "7"))
    assert said.scores == pytest.approx(expected)
    assert said.answers == programs.answers and said.weights == (0.0,) * 5, "they do not vote again"
    assert verdict(only("programs", programs=Told(answers=(None,))), candidates("15")).scores == (None,)


def test_verdict_and_coherence():
    assert verdict(only("verdict", verdict=Told((0.2, 0.7))), candidates("1", "2")).scores == (0.2, 0.7)
    logprobs = (math.log(0.5), math.log(0.9))
    said = verdict(only("coherence"), candidates("1", logprobs=logprobs) + candidates("2", logprobs=()))
    assert said.scores == pytest.approx((0.7, None))


def test_the_score_is_the_weighted_mean_of_the_parts_that_say_something():
    parts = {"programs": Told(answers=("15",)), "verdict": Told((0.5, None, 0.9))}
    seen = candidates("15", "11", None)
    said = verdict(Ensemble(**parts), seen)
    assert said.scores[0] == pytest.approx((0 + 1 + 0.5 * 0.5 + 0.5 * 0.9) / 3)
    assert said.scores[1] == pytest.approx((0 + 0 + 0.5 * 0.9) / 2.5), "the verdict says nothing of it"
    assert said.scores[2] == 0, "without an answer"
    assert set(said.parts) == set(PARTS)
    weighed = verdict(Ensemble(**parts, verdict_weight=2.0), seen)
    assert weighed.scores[0] == pytest.approx((0 + 1 + 2 * 0.5 + 0.5 * 0.9) / 4.5)


ENSEMBLE = ["method=best_of_n", "verifier=ensemble", "method.samples=3", "verifier.programs.samples=2"]


@pytest.mark.parametrize(
    ("off", "programs", "texts"),
    [((), 2, 3 + 3), (("programs",), 0, 3 + 3), (("verdict",), 2, 3), (("programs", "verdict"), 0, 3)],
)
def test_a_part_of_weight_0_costs_nothing(off, programs, texts):
    engine = Programmer([RIGHT, WRONG], answers=["15", "11", "12"])
    result = solved(engine, *ENSEMBLE, *(f"verifier.{part}_weight=0" for part in off))
    assert len(engine.asked) == programs and len(engine.texts) == texts
    stored = result.trace[0]["verifier"]["parts"]
    assert list(stored) == [part for part in PARTS if part not in off]
    assert result.usage.keys() == {"candidate", "verifier"} if programs or texts > 3 else {"candidate"}


def test_the_coherence_is_in_the_score_or_in_the_reward():
    engine = Programmer([BROKEN], answers=["15", "11"])
    inside = solved(engine, *ENSEMBLE, "verifier.verdict_weight=0")
    assert all(c.reward == c.verified and c.coherence for c in inside.candidates)
    outside = solved(Programmer(), *ENSEMBLE, "verifier.verdict_weight=0", "verifier.coherence_weight=0")
    assert all(c.reward == pytest.approx(c.verified + c.coherence) for c in outside.candidates)


def test_rounds_reuse_programs_and_count_all_texts():
    engine = Programmer([RIGHT], answers=["15", "11", "15", "15"])
    options = ["method=verified_sampling", "verifier=ensemble", "search.candidates=2", "search.rounds=1"]
    result = solved(engine, *options, "search.stopping.rule=none", "verifier.verdict_weight=0")
    assert len(engine.asked) == 4
    first, second = (entry["verifier"]["parts"] for entry in result.trace)
    assert first["texts"] == [0, 0] and second["texts"] == pytest.approx([2 / 3, 2 / 3])
    assert second["programs"] == [1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"texts_weight": -1.0}, "texts_weight: expected"),
        ({"repeat_weight": 2.0}, "repeat_weight: expected"),
        (OFF, "texts_weight: expected a part with a weight above 0, got none"),
    ],
)
def test_bad_values_are_one_line(options, message):
    with pytest.raises(ValueError, match=message):
        Ensemble(**options)


# A simulated world: a text is right with the question's probability, wrong answers are few and unequal.


def simulated(seed, texts, judge):
    """(candidates of which "0" is right, the ensemble's parts) of one question; ``judge`` makes the parts."""
    draw = Random(seed)
    ease, wrong = draw.betavariate(1.2, 0.8), [draw.random() + 0.05 for _ in range(draw.randint(2, 5))]

    def answer(right):
        if draw.random() < right:
            return "0"
        return str(100 * (1 + draw.choices(range(len(wrong)), wrong)[0]))

    seen = [
        replace(one, logprobs=(math.log(draw.uniform(0.7, 1)),))
        for one in candidates(*(answer(ease) for _ in range(texts)))
    ]
    return seen, judge(draw, [one.answer for one in seen], lambda right: answer(right * ease))


def knows_nothing(draw, answers, write):
    """Random verdicts; programs whose values nobody else has."""
    return Told(answers=tuple(map(str, range(7, 11)))), Told(tuple(draw.random() for _ in answers))


def repeats_anything(draw, answers, write):
    """Random verdicts; each program has the answer of a text drawn at random among the different ones."""
    programs = tuple(draw.choice(sorted(set(answers))) for _ in range(4))
    return Told(answers=programs), Told(tuple(draw.random() for _ in answers))


def knows_something(draw, answers, write):
    """Programs that are right as often as texts, and verdicts that are a little higher for right texts."""
    scores = (min(1, max(0, draw.gauss(0.75 if a == "0" else 0.62, 0.2))) for a in answers)
    return Told(answers=tuple(write(1.0) for _ in range(4))), Told(tuple(scores))


def accuracy(judge, texts=5, questions=2000, rule="weighted_vote", **options):
    """(share of right majorities, share of right answers of the ensemble)"""
    majority = ensemble = 0
    for seed in range(questions):
        seen, (programs, judged) = simulated(seed, texts, judge)
        said = verdict(Ensemble(programs=programs, verdict=judged, **options), seen)
        rewarded = [replace(c, reward=score) for c, score in zip(seen, said.scores, strict=True)]
        majority += FinalAnswer("vote").choose(SearchHistory(seen, [], Grader())) == "0"
        ensemble += FinalAnswer(rule).choose(SearchHistory(rewarded, [said], Grader())) == "0"
    return majority / questions, ensemble / questions


@pytest.mark.slow
@pytest.mark.parametrize("texts", [3, 5, 10])
def test_judges_that_know_nothing_do_no_harm(texts):
    majority, ensemble = accuracy(knows_nothing, texts)
    assert ensemble > majority - 0.01
    majority, ensemble = accuracy(repeats_anything, texts)
    assert ensemble > majority - 0.02, "programs that only repeat texts at random cost a point"


def test_judges_that_know_something_help():
    majority, ensemble = accuracy(knows_something)
    assert ensemble > majority + 0.01
    _, by_reward = accuracy(knows_something, rule="reward_vote")
    assert by_reward > majority + 0.01


def test_fitted_weights_are_probabilities_and_leave_parts_out(tmp_path):
    fitted = FittedWeights(
        {"texts": 4.0, "programs": 2.0, "verdict": 0.0}, {p: 0.5 for p in PARTS[:3]}, 0.3, {}, {}
    )
    file = tmp_path / "weights.json"
    fitted.save(file)
    ensemble = Ensemble(programs=Told(answers=("15",)), fitted=file)
    assert ensemble.weights == {"texts": 4.0, "programs": 2.0} and [j.name for j in ensemble.judges] == [
        "told"
    ]
    assert not ensemble.reads_coherence
    said = verdict(ensemble, candidates("15", "11"))
    odds = [0.3 + 4 * (0 - 0.5) + 2 * (1 - 0.5), 0.3 + 4 * (0 - 0.5) + 2 * (0 - 0.5)]
    assert said.scores == pytest.approx([1 / (1 + math.exp(-x)) for x in odds])
    assert fitted.probability({}) == pytest.approx(1 / (1 + math.exp(-0.3))), (
        "what says nothing counts as the mean"
    )
    switched_off = Ensemble(programs=Told(), programs_weight=0.0, fitted=fitted)
    assert switched_off.weights == {"texts": 4.0}


@pytest.mark.parametrize("content", ["", "{}", '{"weights": 3}', "[1]", '{"portfolio": []}'])
def test_another_file_is_refused(content, tmp_path):
    file = tmp_path / "weights.json"
    file.write_text(content)
    with pytest.raises(
        UserError, match="verifier.fitted: expected a file that soft-reasoning calibrate wrote, got"
    ):
        Ensemble(fitted=str(file))
    with pytest.raises(UserError, match="No such file"):
        Ensemble(fitted=str(tmp_path / "missing.json"))


def test_the_wording_of_programs_is_needed_where_they_count():
    from soft_reasoning.configuration.build import build_method, check_wording
    from soft_reasoning.configuration.compose import compose_config

    options = ["engine=fake", "prompt=boolean", "verifier=ensemble"]
    config = compose_config(options)
    with pytest.raises(UserError, match="programs: expected questions that a program can compute"):
        check_wording(config, build_method(config))
    config = compose_config([*options, "verifier.programs_weight=0"])
    check_wording(config, build_method(config))
