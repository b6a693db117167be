"""Soft Thinking: the mixture by hand, its limits, and its noise."""

import pytest
import torch

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.methods.since.soft_thinking import SoftThinking, _Mixture
from tests.engines.models import tiny
from tests.methods.scripted import ScriptedEngine, context_of
from tests.methods.test_gradients import PROBLEMS, greedy, results, texts


@pytest.fixture(scope="module")
def engine():
    return HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())


def test_the_mixture_by_hand():
    engine = ScriptedEngine({})
    logits = torch.full((engine.tokenizer.vocab_size,), -9.0)
    logits[:3] = torch.tensor([2.0, 1.0, 0.0])
    mixture = _Mixture(SoftThinking(mixed=2, temperature=0.5), context_of(engine), seed=0)
    weights = torch.tensor([4.0, 2.0]).softmax(-1)
    assert torch.allclose(mixture.log_weights((), logits)[:2].exp(), weights)
    assert mixture.log_weights((), logits)[2:].isinf().all()
    expected = weights @ engine.embed([0, 1])
    assert torch.allclose(mixture.embedding(mixture.log_weights((), logits)), expected, atol=1e-6)


def test_gumbel_noise_draws_the_first_token_in_proportion_to_its_probability():
    engine = ScriptedEngine({})
    logits = torch.log(torch.tensor([0.6, 0.3, 0.1]))
    method = SoftThinking(mixed=3, temperature=1.0, gumbel=0.5)
    draws = [_Mixture(method, context_of(engine), i).log_weights((), logits).argmax() for i in range(3000)]
    shares = torch.bincount(torch.stack(draws), minlength=3) / 3000
    assert torch.allclose(shares, torch.tensor([0.6, 0.3, 0.1]), atol=0.04)
    first, again = (_Mixture(method, context_of(engine), 1).log_weights((5,), logits) for _ in range(2))
    assert torch.equal(first, again)  # a function of the tokens, so that steps can be redone
    sharp = SoftThinking(mixed=3, temperature=1.0, gumbel=0.01)
    assert float(_Mixture(sharp, context_of(engine), 1).log_weights((5,), logits).softmax(-1).max()) > 0.99


def test_one_token_mixtures_are_greedy_and_others_are_not(engine):
    assert texts(results(SoftThinking(mixed=1, max_new_tokens=12), engine)) == greedy(engine)
    soft = texts(results(SoftThinking(temperature=5.0, max_new_tokens=12), engine))
    assert soft != greedy(engine)
    assert soft == texts(results(SoftThinking(temperature=5.0, max_new_tokens=12), engine, max_live=1))
    noisy = texts(results(SoftThinking(samples=3, gumbel=0.5, temperature=2.0, max_new_tokens=12), engine))
    assert any(len({*noisy[p.id]}) > 1 for p in PROBLEMS)


def test_after_the_thoughts_it_is_greedy():
    mixture = _Mixture(SoftThinking(mixed=4, gumbel=1.0), context_of(ScriptedEngine({})), seed=0)
    mixture._end = 9
    logits = torch.randn(30, generator=torch.Generator().manual_seed(0))
    assert int(mixture.log_weights((3,), logits).isfinite().sum()) == 4
    after = mixture.log_weights((3, 9), logits)
    assert after.isfinite().nonzero().tolist() == [[int(logits.argmax())]]
