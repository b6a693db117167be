"""The constrained objective against its hand-written gradient and its limits."""

import math

import pytest
import torch

from soft_reasoning.finetuning.objective import strengths, token_losses, token_weights


@pytest.fixture
def model():
    """(logits of 12 tokens over 7 words, targets, reference log-probabilities, b), float64."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 7, (12,), generator=generator)
    reference = torch.randn(12, 7, generator=generator, dtype=torch.float64).log_softmax(-1)
    b = strengths(12, first=0.5, early=2.0, early_tokens=5, rest=0.1).double()
    return logits, targets, reference[torch.arange(12), targets], b


def chosen(logits, targets):
    return logits.log_softmax(-1)[torch.arange(len(targets)), targets]


def gradient(loss, logits):
    return torch.autograd.grad(loss, logits)[0]


def test_the_gradient_is_that_of_weighted_cross_entropy(model):
    logits, targets, reference, b = model
    got = gradient(token_losses(chosen(logits, targets), reference, b).sum(), logits)
    probabilities = logits.detach().softmax(-1)
    for t in range(12):
        p = probabilities[t, targets[t]]
        ratio = math.log(p) - reference[t].item()
        weight = 2 * (1 - 1 / (1 + math.exp(-b[t].item() * ratio)))
        for word in range(7):  # d(-log softmax)/d logit = p - 1{target}
            expected = weight * (probabilities[t, word].item() - (word == targets[t].item()))
            assert got[t, word].item() == pytest.approx(expected, abs=1e-6)
    weights = token_weights(chosen(logits, targets), reference, b)
    assert torch.allclose(got, gradient((weights * -chosen(logits, targets)).sum(), logits), atol=1e-12)


def test_small_b_is_plain_fine_tuning(model):
    logits, targets, reference, _ = model
    tiny = torch.full((12,), 1e-8, dtype=torch.float64)
    got = gradient(token_losses(chosen(logits, targets), reference, tiny).sum(), logits)
    assert torch.allclose(got, gradient(-chosen(logits, targets).sum(), logits), atol=1e-6)


def test_weights_are_one_where_model_and_reference_agree(model):
    logits, targets, _, b = model
    logprobs = chosen(logits, targets)
    assert torch.equal(token_weights(logprobs, logprobs, b), torch.ones(12, dtype=torch.float64))
    losses = token_losses(logprobs, logprobs, b)
    assert torch.allclose(losses, 2 / b * math.log(2))


def test_a_strongly_held_token_stops_pulling_once_likelier():
    ratio = torch.tensor([3.0, 3.0, -3.0])
    weights = token_weights(ratio, torch.zeros(3), torch.tensor([2.0, 0.1, 2.0]))
    assert weights[0] < 0.01 and weights[1] > 0.8 and weights[2] > 1.99


def test_extreme_ratios_stay_finite():
    ratio = torch.tensor([1e4, -1e4], requires_grad=True)
    losses = token_losses(ratio, torch.zeros(2), torch.tensor([2.0, 2.0]))
    losses.sum().backward()
    assert torch.isfinite(losses).all() and torch.isfinite(ratio.grad).all()


def test_strengths_by_position():
    weights = strengths(8, first=0.5, early=2.0, early_tokens=5, rest=0.1).tolist()
    assert weights == pytest.approx([0.5, 2, 2, 2, 2, 0.1, 0.1, 0.1])
    assert strengths(1, first=0.5, early=2.0, early_tokens=5, rest=0.1).tolist() == [0.5]
