"""SLOT, LTPO and LatentSeek: their formulas by hand, and eight architectures and more."""

import math
from dataclasses import replace

import pytest
import torch

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.methods.since.latentseek import LatentSeek, policy_loss
from soft_reasoning.methods.since.ltpo import Ltpo, confidence
from soft_reasoning.methods.since.slot import Slot
from soft_reasoning.scheduling.context import Limits
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Problem, Prompt, Request, UserError, generator_for
from tests.engines.models import random_ids, tiny
from tests.methods.scripted import PROBLEM, ScriptedEngine, context_of, judge

PROBLEMS = [Problem(str(i), "?") for i in range(3)]


def context_for(engine):
    return context_of(engine, solve=lambda problem: Prompt(random_ids(15, int(problem.id))))


@pytest.fixture(scope="module")
def engine():
    return HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())


def results(method, engine, **how):
    return {p.id: r for p, r in drive(PROBLEMS, method, context_for(engine), **how)}


def texts(solved):
    return {name: [c.token_ids for c in result.candidates] for name, result in solved.items()}


def greedy(engine, count=12):
    asked = [Request(random_ids(15, int(p.id)), max_new_tokens=count) for p in PROBLEMS]
    return {p.id: [c.token_ids] for p, c in zip(PROBLEMS, engine.generate(asked), strict=True)}


def test_slot_without_steps_is_greedy_and_its_loss_falls(engine):
    assert texts(results(Slot(steps=0, max_new_tokens=12), engine)) == greedy(engine)
    fitted = results(Slot(steps=8, rate=0.05, max_new_tokens=12), engine)
    for result in fitted.values():
        losses = result.trace[0]["losses"]
        assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] - 0.05
        assert result.usage["gradient"].prompt_tokens == 15
    assert texts(fitted) != greedy(engine)
    faster = results(Slot(steps=8, rate=0.2, max_new_tokens=12), engine)
    assert faster["0"].trace[0]["losses"] != fitted["0"].trace[0]["losses"]


def test_slot_decodes_the_shifted_state(engine):
    """delta of a step: 0.1 times the sign of the gradient at 0, which is what AdamW's first step is."""
    [result] = [r for p, r in drive(PROBLEMS[:1], Slot(steps=1, max_new_tokens=1), context_for(engine))]
    ids = random_ids(15, 0)
    states = engine.hidden_states([Request(ids)])[0].clone().requires_grad_()
    head = engine.model.get_output_embeddings()
    loss = torch.nn.functional.cross_entropy(head(states[:-1]), torch.tensor(ids[1:]))
    gradient = torch.autograd.grad(loss, states)[0].sum(0)
    delta = -0.1 * gradient / (gradient.abs() + 1e-5)
    assert result.trace[0]["losses"] == [pytest.approx(float(loss.detach()), rel=1e-4)]
    assert result.candidates[0].token_ids == (int(head(states[-1] + delta).argmax()),)


def test_slot_is_refused_where_logits_are_capped():
    with pytest.raises(UserError, match="slot: expected a model whose logits are linear"):
        results(Slot(rate=5.0), HuggingFaceEngine.from_loaded(tiny("gemma2"), FakeTokenizer()))


def test_ltpo_s_reward_and_update_by_hand():
    asked = ScriptedEngine({"": {" 7": 0.5, " 3": 0.3, " 2": 0.2}})
    steps = Ltpo(thoughts=2, steps=1).solve(PROBLEM, context_of(asked))
    requests = next(steps).requests
    assert [len(r.soft) for r in requests] == [1, 2] and requests[0].top_logprobs == 10
    noise = 4.0 * torch.randn(2, 32, generator=generator_for(0, "p", "thoughts", 0))
    begin = asked.embed([min(asked.eos_ids)])
    assert torch.allclose(requests[1].soft, begin + noise)
    looks = asked.generate(requests)
    reward = sum(-sum(max(p, -23.0) for p in look.top_logprobs[0].logprobs) / 10 for look in looks) / 2
    decoded = steps.send(looks).requests[0]
    assert torch.allclose(decoded.soft, begin + 0.04 * reward * noise / 16.0, rtol=1e-4, atol=1e-6)


def test_ltpo_by_backpropagation_raises_the_confidence(engine):
    quiet = Ltpo(thoughts=3, steps=12, gradient="backprop", rate=0.02, sigma=1e-6, max_new_tokens=8)
    for result in results(quiet, engine).values():
        rewards = result.trace[0]["rewards"]
        assert rewards[-1] > rewards[0]
        assert result.usage["gradient"].recomputed_tokens == 12 * 2 * 18
    logits = torch.randn(3, 40)
    by_hand = [-sum(sorted(row.log_softmax(-1).tolist())[-10:]) / 10 for row in logits]
    assert float(confidence(logits)) == pytest.approx(sum(by_hand) / 3, rel=1e-5)


def test_latentseek_follows_the_gradient_of_its_policy(engine):
    """Of log softmax(W z)[a] it is W[a] - sum p W, times R; and by finite differences."""
    ids = random_ids(15, 0)
    states = engine.hidden_states([Request(ids)])[0][:4].clone()
    weight = engine.model.get_output_embeddings().weight.detach()
    tokens = engine.lm_head(states).argmax(-1).clone()
    _, gradient = engine.lm_head_gradient(states, policy_loss(tokens, -0.7))
    expected = 0.7 * (weight[tokens] - (states @ weight.T).softmax(-1) @ weight)
    assert torch.allclose(gradient, expected, atol=1e-5)
    step = 1e-2 * torch.nn.functional.normalize(gradient, dim=-1)
    loss = policy_loss(tokens, -0.7)
    ahead, behind = (float(loss(engine.lm_head(states + s * step), slice(None))) for s in (1, -1))
    assert (ahead - behind) / 2 == pytest.approx(float((gradient * step).sum()), rel=1e-2)


def test_latentseek_ends_when_the_verifier_is_content(engine):
    content = results(LatentSeek(judge(0.9), max_new_tokens=12), engine)
    assert texts(content) == greedy(engine)
    never = LatentSeek(judge(0.0), share=0.5, steps=3, rate=0.3, max_new_tokens=12)
    searched = results(never, engine)
    assert all(len(r.candidates) == 4 and r.candidates[0].reward == -1.0 for r in searched.values())
    assert any(r.candidates[0].token_ids != r.candidates[-1].token_ids for r in searched.values())
    short = results(replace(never, share=0.01), engine)  # nothing to move
    assert all(len(r.candidates) == 1 for r in short.values())


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_a_moved_beginning_has_the_log_probabilities_of_the_model(engine, share):
    seeking = LatentSeek(judge(0.0), share=share, steps=2, rate=0.3, max_new_tokens=12)
    solved = results(seeking, engine)
    for name, result in solved.items():
        prompt = random_ids(15, int(name))
        for candidate in result.candidates:
            with torch.inference_mode():
                logits = engine.model(torch.tensor([prompt + candidate.token_ids])).logits[0]
            rows = logits[len(prompt) - 1 : -1].log_softmax(-1)
            expected = rows[range(len(candidate.token_ids)), list(candidate.token_ids)]
            assert torch.allclose(torch.tensor(candidate.logprobs), expected, atol=1e-4)


@pytest.mark.parametrize(
    "method",
    [Slot(steps=steps, max_new_tokens=6) for steps in (0, 1, 3)]
    + [LatentSeek(judge(0.0), share=s, steps=2, rate=0.3, max_new_tokens=12) for s in (0.2, 0.5, 1.0)],
    ids=lambda method: f"{method.name} {getattr(method, 'share', method.steps)}",
)
def test_what_the_head_computes_is_counted(engine, method, monkeypatch):
    rows = []

    def watch(name, passes):
        run = getattr(engine, name)
        monkeypatch.setattr(engine, name, lambda x, *rest: (rows.append(passes * len(x)), run(x, *rest))[1])

    watch("lm_head", 1)
    watch("lm_head_gradient", 3)
    [(_, result)] = drive(PROBLEMS[:1], method, context_for(engine))
    counted = result.usage["gradient"].recomputed_tokens
    assert rows and counted == sum(math.ceil(engine.lm_head_share * n) for n in rows)


@pytest.mark.parametrize("name", ["slot", "latentseek", "ltpo backprop"])
def test_a_deadline_ends_what_follows_gradients(engine, name):
    late = replace(context_for(engine), limits=Limits(max_seconds=1e-9))
    [(_, result)] = drive(PROBLEMS[:1], METHODS[name], late)
    assert "gradient" not in result.usage


def test_latentseek_keeps_its_answer_when_time_ends_between_two_looks(engine, monkeypatch):
    now, read = [0.0], engine.hidden_states
    monkeypatch.setattr("soft_reasoning.scheduling.job.monotonic", lambda: now[0])
    monkeypatch.setattr(
        engine, "hidden_states", lambda requests: (now.append(now.pop() + 2e9), read(requests))[1]
    )
    late = replace(context_for(engine), limits=Limits(max_seconds=1e9))
    [(_, result)] = drive(PROBLEMS[:1], METHODS["latentseek"], late)
    assert len(result.candidates) == 1 and result.usage["gradient"].recomputed_tokens == 0


METHODS = {
    "slot": Slot(max_new_tokens=6),
    "ltpo": Ltpo(thoughts=2, steps=2, max_new_tokens=6),
    "ltpo backprop": Ltpo(thoughts=2, steps=2, gradient="backprop", max_new_tokens=6),
    "latentseek": LatentSeek(judge(0.0), share=0.5, steps=2, rate=0.3, max_new_tokens=6),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_problem_gets_the_same_alone_and_in_a_batch(name, engine):
    together = results(METHODS[name], engine)
    assert texts(results(METHODS[name], engine, max_live=1)) == texts(together)


FAMILIES = ("mistral", "qwen2", "qwen3", "phi3", "gpt2", "gpt_neox", "opt", "olmo2", "granite", "cohere2")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_methods_run_on_every_architecture(family):
    engine = HuggingFaceEngine.from_loaded(tiny(family), FakeTokenizer())
    for method in METHODS.values():
        for result in results(method, engine).values():
            assert all(c.token_ids for c in result.candidates)
    rewards = results(METHODS["ltpo"], engine)["0"].trace[0]["rewards"]
    exact = results(replace(METHODS["ltpo"], gradient="backprop"), engine)["0"].trace[0]["rewards"]
    assert rewards[0] == pytest.approx(exact[0], rel=1e-3)  # the same reward by both ways
    assert math.isfinite(rewards[-1])
