"""Features and pools: what distinguishes points, scaled distances, equal behaviour."""

import math

import pytest
import torch

from soft_reasoning.space.features import (
    HiddenStateFeatures,
    LookaheadFeatures,
    NextTokenFeatures,
)
from soft_reasoning.space.pool import PointPool, scaled
from soft_reasoning.types import GREEDY, Completion, Request, Sampling, generator_for

LOGITS = torch.randn(6, 30, generator=generator_for(0, "logits"))
REQUEST = Request((1, 2), sampling=Sampling(0.8), max_new_tokens=40, min_new_tokens=2, stop=("\n",))


def looked(ids=(), **more):
    return Completion(tuple(ids), (0.0,) * len(ids), "", "length", 3, **more)


def distances(rows):
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def test_next_token_distances_are_hellinger_distances():
    features = NextTokenFeatures()
    rows = features.rows(torch.empty(6, 2), torch.empty(6, 1, 3), [looked(next_logits=row) for row in LOGITS])
    p = LOGITS.double().softmax(-1)
    hellinger = (1 - (p[:, None] * p[None]).sqrt().sum(-1)).clamp_min(0).sqrt()
    assert torch.allclose(distances(rows), math.sqrt(2) * hellinger, atol=1e-7)


def test_the_likeliest_tokens_are_close_to_all_and_the_rest_is_one_column():
    p = (3 * LOGITS).log_softmax(-1)
    both = {}
    for top in (25, 30):
        values, ids = p.topk(top)
        looks = [looked(top_logprobs=((i.tolist(), v.tolist()),)) for i, v in zip(ids, values, strict=True)]
        rows = NextTokenFeatures(top).rows(torch.empty(6, 2), torch.empty(6, 1, 3), looks)
        assert torch.allclose(rows.square().sum(-1), torch.ones(6, dtype=torch.float64))
        both[top] = distances(rows)
    full = distances(p.double().exp().sqrt())
    assert torch.allclose(both[30], full, atol=1e-6)
    assert (both[25] - full).abs().max() < 0.1


def test_a_lookahead_counts_places_where_tokens_differ():
    rows = LookaheadFeatures(3).rows(
        torch.empty(3, 2), torch.empty(3, 1, 3), [looked([5, 6, 7]), looked([5, 7, 6]), looked([5])]
    )
    assert distances(rows).square().round().tolist() == [[0, 4, 2], [4, 0, 2], [2, 2, 0]]


@pytest.mark.parametrize(
    ("features", "tokens"),
    [
        (NextTokenFeatures(), 0),
        (NextTokenFeatures(20), 0),
        (HiddenStateFeatures(), 0),
        (LookaheadFeatures(8), 8),
        (LookaheadFeatures(80), 40),
    ],
)
def test_a_look_is_a_greedy_request_counted_as_such(features, tokens):
    request = features.look(REQUEST)
    assert (request.max_new_tokens, request.sampling, request.role) == (tokens, GREEDY, "look")
    assert request.prompt_ids == REQUEST.prompt_ids


@pytest.mark.parametrize("columns", [1, 7, 300])
def test_scaling_keeps_the_ratios_of_distances(columns):
    rows = torch.randn(20, columns, dtype=torch.float64, generator=generator_for(0, columns))
    rows[3] = rows[2]
    out = scaled(rows)
    ratio = (distances(out) / distances(rows))[~torch.eye(20, dtype=torch.bool)]
    ratio = ratio[ratio.isfinite()]
    assert out.shape == (20, 20) and torch.allclose(ratio, ratio[:1])
    above = torch.pdist(out)
    assert above[above > 1e-6].median() == pytest.approx(math.sqrt(40))
    assert torch.equal(scaled(torch.ones(4, columns)), torch.zeros(4, 4, dtype=torch.float64))


def test_a_pool_offers_each_behaviour_once():
    points = torch.arange(10.0).reshape(5, 2).double()
    pool = PointPool.of(points, points, ["a", "b", "a", "c", "b"])
    assert pool.unseen(points[:0]) == 3 and pool.unseen(points[[2]]) == 2
    assert pool.choices(points[[2]]).tolist() == [-1, 1, -1, 2, 1]
    assert pool.unseen(points[[2, 3, 4]]) == 0
    assert pool.find(points[[3, 1]]).tolist() == [3, 1]


def test_bad_values():
    for make in (lambda: NextTokenFeatures(0), lambda: LookaheadFeatures(0)):
        with pytest.raises(ValueError, match="at least 1"):
            make()
