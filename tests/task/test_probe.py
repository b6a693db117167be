"""A probe of hidden states: what it reads, what it refuses, and what it changes in a vote."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.judge.programs import Programs
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.method.mixed_consistency import MixedConsistency
from soft_reasoning.method.sampling import SelfConsistency
from soft_reasoning.method.verified_sampling import VerifiedSampling
from soft_reasoning.schedule.method import Limits
from soft_reasoning.schedule.scheduler import drive, run_steps
from soft_reasoning.search import Stopping
from soft_reasoning.task import ProbeFitting
from soft_reasoning.task.learnt import made_for
from soft_reasoning.task.probe import DEPTH, HiddenStateJudge, Probe, read_states, vote_shares
from soft_reasoning.types import Candidate, Request, UserError
from tests.contracts import verifier as contract

WORDS = ["model=demo", "dataset=demo", "dataset.split=validation", "limit=40"]


@pytest.fixture(scope="module")
def task():
    """The context and problems of the bundled model."""
    config = compose_config(WORDS)
    engine = build_engine(config)
    yield build_context(config, engine), build_dataset(config).problems()
    engine.close()


def value(problem, context, steps):
    [returned] = run_steps(steps, [problem], context)
    return returned


@pytest.fixture(scope="module")
def probe(task):
    context, problems = task
    return ProbeFitting(samples=4, max_new_tokens=60).fit(problems[:32], context)


def test_a_probe_learns_from_labelled_texts_and_keeps_what_identifies_it(task, probe, tmp_path):
    context, problems = task
    assert len(probe.weights) == 2 * context.engine.hidden_size
    assert probe.made_for == made_for(context) and set(probe.questions) == {p.id for p in problems[:32]}
    assert 0.5 < probe.measured["auc"] <= 1 and 0 < probe.measured["right"] < 1
    assert probe.vote_weight > 0 and 0.5 < probe.measured["auc_votes"] <= 1
    probe.save(tmp_path / "probe.json")
    assert Probe.load(tmp_path / "probe.json") == probe
    probe.check_unseen(problems[32:])
    with pytest.raises(UserError, match="probe: expected questions that it was not learnt from"):
        probe.check_unseen(problems[31:])


def test_its_states_are_those_of_the_model_at_the_end_and_on_average(task):
    context, problems = task
    engine, prompt = context.engine, context.prompts.solve(problems[0])
    states = value(problems[0], context, lambda p, c: read_states(p, ["She has 4.", "5"], c))
    assert states.shape == (2, 2 * engine.hidden_size)
    ids = (*prompt.ids, *engine.tokenizer.encode("She has 4.", add_special_tokens=False))
    with torch.inference_mode():
        hidden = engine.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    layer = round(DEPTH * (len(hidden) - 1))
    wanted = torch.stack([hidden[layer][0, -1], hidden[layer][0, len(prompt.ids) :].mean(0)]).float()
    assert torch.allclose(states[0], wanted.flatten(), rtol=1e-4, atol=1e-2)


def test_texts_without_a_token_and_texts_that_fill_the_context_are_read(task):
    context, problems = task
    long = "She has 4. " * context.engine.context_length
    states = value(problems[0], context, lambda p, c: read_states(p, ["", long], c))
    last, mean = states[0].chunk(2)
    assert torch.allclose(last, mean, rtol=1e-4) and torch.isfinite(states).all()


def test_the_score_is_the_logistic_function_of_the_state_and_the_votes(task):
    probe = Probe(weights=(0.0,), vote_weight=3.0, bias=0.5)
    scores = probe.scores([1.0, -2.0, np.nan, 0.0], ["5", "5.0", None, "6"], task[0].grader, "number")
    assert np.allclose(scores, [1 / (1 + np.exp(-2.5)), 1 / (1 + np.exp(0.5)), 0, 1 / (1 + np.exp(-0.5))])


def test_the_votes_for_an_answer_are_the_share_of_the_others_with_it(task):
    grader = task[0].grader
    assert vote_shares(["5", None, "5.0", "6", "5"], grader, "number") == [0.5, 0.0, 0.5, 0.0, 0.5]
    assert vote_shares(["5"], grader, "number") == [0.0] and vote_shares([], grader, "number") == []


def test_a_candidate_without_an_answer_scores_0_and_is_not_read(task, probe):
    context, problems = task
    verifier = HiddenStateJudge(probe=probe)
    candidates = [Candidate("Who knows", None, 0), Candidate("The answer is 5.", "5", 0)]
    verdict = value(problems[35], context, lambda p, c: verifier.verify(p, candidates, c, ()))
    assert verdict.scores[0] == 0.0 and 0 < verdict.scores[1] < 1 and verdict.answers == ()


def test_a_budget_that_ends_before_the_states_are_read_leaves_candidates_unjudged(task, probe):
    context, problems = task
    methods = [
        VerifiedSampling(samples=1, verifier=HiddenStateJudge(probe=probe), stopping=Stopping(rounds=0)),
        MixedConsistency(probe=probe, samples=1, confidence=1.0, programs=Programs(samples=1)),
    ]
    for method in methods:
        [(_, free)] = drive(problems[35:36], method, context)
        assert free.answer is not None and free.candidates[0].verified is not None
        written = sum(usage.generated_tokens for usage in free.usage.values())
        [(_, result)] = drive(problems[35:36], method, replace(context, limits=Limits(max_tokens=written)))
        assert result.answer == free.answer and result.candidates[0].verified is None


def test_another_model_prompt_or_engine_is_refused_in_one_line(task, probe):
    context, problems = task
    verifier = HiddenStateJudge(probe=probe)
    fake = FakeEngine()
    other = build_context(compose_config(["engine=fake"]), fake)
    candidates = [Candidate("The answer is 5.", "5", 0)]
    with pytest.raises(UserError, match="probe: expected one that was made for this model"):
        value(problems[35], other, lambda p, c: verifier.verify(p, candidates, c, ()))
    with pytest.raises(UserError, match="expected an engine with hidden states, got FakeEngine"):
        fake.add([Request((1, 2), max_new_tokens=0, hidden_state=DEPTH)])


def test_questions_that_teach_nothing_are_one_line(task):
    context, problems = task
    few = ProbeFitting(samples=1, max_new_tokens=60)
    with pytest.raises(UserError, match="expected 5 or more with an answer and a solution, got 4"):
        few.fit(problems[:4], context)
    [(_, solved)] = drive(problems[:1], SelfConsistency(samples=1, max_new_tokens=60), context)
    wrong = [replace(problem, gold="no number") for problem in problems[1:12]]
    for golds in ([], [replace(problems[0], gold=solved.answer)]):  # all wrong, or correct in one question
        with pytest.raises(UserError, match=f"several with correct .* got {len(golds)} correct of"):
            few.fit([*golds, *wrong], context)
    with pytest.raises(UserError, match="expected one answer type, got boolean, number"):
        few.fit([*problems[:6], replace(problems[6], answer_type="boolean")], context)


def test_scores_weigh_the_solutions_of_mixed_consistency(task):
    method = MixedConsistency()
    grader = task[0].grader
    weights, sums = method.votes(["1", "2"], ["2", "1"], grader, "number", [0.9, 0.3])
    assert weights == [1.5, 0.5, 1.0, 1.0] and sums == [2.5, 1.5]
    assert method.votes(["1", "2"], ["2"], grader, "number") == ([1.0] * 3, [1.0, 2.0])
    assert method.votes(["1", "2"], [], grader, "number", [0.0, 0.0])[0] == [1.0, 1.0]
    weights, sums = method.votes(["1", None, None], ["2", "2"], grader, "number", [0.1, 0.0, 0.0])
    assert weights[0] == 1.0 and sums == [1.0, 2.0], "solutions without an answer give their votes to none"
    weights, _ = method.votes(["1", "2", "3"], [], grader, "number", [0.9, 0.3, None])
    assert weights == [1.5, 0.5, 1.0], "an unjudged solution weighs as much as the others do on average"


@pytest.mark.parametrize("confidence", [0.99, 1.0], ids=["one by one", "at once"])
def test_a_probe_weighs_the_votes_of_a_run_by_the_scores_of_its_verifier(task, probe, confidence):
    context, problems = task
    judged = MixedConsistency(probe=probe, confidence=confidence, max_new_tokens=60)
    [(_, result)] = drive(problems[36:37], judged, context)
    solutions = [c for c in result.candidates if not c.computed]
    scores = [c.verified for c in solutions]
    assert len(scores) > 1
    assert np.allclose(result.trace[0]["weights"], np.array(scores) / np.mean(scores))
    verifier = HiddenStateJudge(probe=probe)
    verdict = value(problems[36], context, lambda p, c: verifier.verify(p, solutions, c, ()))
    assert np.allclose(verdict.scores, scores)


@pytest.mark.parametrize(
    "check",
    [
        contract.scores_lie_between_0_and_1,
        contract.candidates_without_an_answer_are_not_called_right,
        contract.the_reference_answer_is_not_read,
    ],
    ids=lambda check: check.__name__,
)
def test_contract(check, task, probe):
    check(HiddenStateJudge(probe=probe), task[0])
