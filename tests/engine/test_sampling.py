"""Draws follow the distribution they should, and the filters keep what they should."""

import math

import pytest
import torch

from soft_reasoning.checks import OptionError
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.sampling import draw, sample_tokens
from soft_reasoning.types import Request, Sampling


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in (math.nan, math.inf, -1.0, "hot", None)),
        *(("top_k", value) for value in (-1, 2.5)),
        *(("top_p", value) for value in (0.0, 1.5, math.nan)),
        *(("first_temperature", -1.0), ("first_top_k", 0.5)),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_name(name, value):
    with pytest.raises(OptionError, match=f"^{name}: expected a .* number"):
        Sampling(**{name: value})


LOGITS = torch.tensor([2.0, 0.5, 1.0, -1.0, 1.0])


def frequencies(count: int = 200_000, **options) -> torch.Tensor:
    u = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tokens = draw(LOGITS.expand(count, -1), u, **options)
    return torch.bincount(tokens, minlength=len(LOGITS)) / count


@pytest.mark.parametrize("temperature", [0.3, 1.0, 30.0])
def test_frequencies_are_the_softmax(temperature):
    expected = (LOGITS / temperature).softmax(-1)
    assert torch.allclose(frequencies(temperature=temperature), expected, atol=5e-3)


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_give_tokens_of_positive_probability(u):
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0]])
    assert draw(logits, torch.tensor([u], dtype=torch.float64), temperature=1.0).item() in (1, 3)


def test_numbers_are_drawn_as_tokens_need_them():
    """The bound of tokens, which may be that of a model without one, costs no memory."""
    generator, numbers = torch.Generator().manual_seed(3), []
    request = Request((1,), max_new_tokens=2**50, seed=3)
    row = RunningRequest(0, request, hidden_size=4, context_length=2**60, vocabulary=9)
    for _ in range(100):
        numbers.append(row.draw())
        row.ids.append(1)
    assert numbers == torch.rand(100, generator=generator, dtype=torch.float64).tolist()


def draw_by_sorting(logits, u, *, temperature: float, top_k: int = 0, top_p: float = 1.0) -> torch.Tensor:
    """The definition: all tokens sorted, equal ones by id; the cumulative distribution inverted at ``u``."""
    values, order = logits.double().sort(dim=-1, descending=True, stable=True)
    count = top_k or logits.shape[-1]
    values, order = values[:, :count], order[:, :count]
    probabilities = (values / temperature).softmax(-1)
    if top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        before[:, 0] = -1
        probabilities = probabilities.masked_fill(before >= top_p, 0.0)
    cumulative = probabilities.cumsum(-1)
    target = (u * cumulative[:, -1]).unsqueeze(-1)
    last = (probabilities > 0).sum(-1, keepdim=True) - 1
    place = torch.searchsorted(cumulative, target, right=True).minimum(last)
    return order.gather(-1, place).squeeze(-1)


FILTERS = [
    {},
    {"temperature": 30.0},
    {"top_k": 5},
    {"top_p": 0.9},
    {"top_p": 0.0},
    {"temperature": 30.0, "top_k": 25},
    {"top_k": 50, "top_p": 0.3},
    {"temperature": 30.0, "top_k": 400, "top_p": 0.95},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("step", [None, 0.5, 4.0], ids=["no ties", "some ties", "mostly ties"])
def test_tokens_are_those_of_a_sorted_vocabulary(filters, step):
    """A million draws in all; most of the vocabulary need not be sorted for that."""
    generator = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(1600, 400, generator=generator)
    logits[::7, ::3] = -torch.inf
    logits[1::7] *= 5
    if step:
        logits = (logits / step).round() * step
    options = {"temperature": 1.0} | filters
    for _ in range(10):
        u = torch.rand(len(logits), generator=generator, dtype=torch.float64)
        assert torch.equal(draw(logits, u, **options), draw_by_sorting(logits, u, **options))


def rows_of(count: int, **options) -> list[RunningRequest]:
    """Requests that run, every third of them greedy."""
    limits = {"hidden_size": 4, "context_length": 2**60, "vocabulary": 400}
    return [
        RunningRequest(
            i, Request((1,), max_new_tokens=9, seed=i, sampling=Sampling(i % 3 / 2), **options), **limits
        )
        for i in range(count)
    ]


def test_a_row_that_is_not_finite_changes_no_other():
    logits = torch.randn(9, 400, generator=torch.Generator().manual_seed(7))
    expected = sample_tokens(logits, rows_of(9), [3])
    assert [row.normaliser for row in expected] == logits.logsumexp(-1).tolist()
    broken = logits.clone()
    broken[1, 5], broken[4], broken[8] = torch.nan, -torch.inf, torch.inf
    for i, (got, row) in enumerate(zip(sample_tokens(broken, rows_of(9), [3]), expected, strict=True)):
        if i in (1, 4, 8):
            assert not math.isfinite(got.normaliser)
        else:
            assert got == row
