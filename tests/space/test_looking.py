"""Soft Reasoning with a pool: looks are counted, gone on from, and never repeated."""

import json

import pytest
import torch

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.data.demo import FOLDER
from soft_reasoning.types import generator_for

QUESTIONS = [json.loads(row)["question"] for row in (FOLDER / "test.jsonl").read_text().splitlines()[:4]]
GREEDY = ["embedding=gaussian", "decoding=greedy"]
POOL = [
    "candidate_points=pool",
    "candidate_points.count=16",
    "surrogate=features",
    "search.stopping.rule=none",
    *GREEDY,
]


@pytest.fixture(scope="module")
def looking():
    with SoftReasoner.from_pretrained("demo", overrides=[*POOL, "features=lookahead"]) as reasoner:
        yield reasoner


@pytest.mark.slow
def test_completions_that_go_on_from_a_look_are_those_from_the_start(looking):
    with SoftReasoner.from_pretrained("demo", overrides=GREEDY) as plain:
        for question in QUESTIONS:
            result = looking.solve(question)
            objective = plain.objective(question)
            objective(torch.tensor([c.u for c in result.candidates], dtype=torch.float64))
            for theirs, mine in zip(objective.candidates, result.candidates, strict=True):
                assert (mine.text, mine.answer, mine.finish_reason) == (
                    theirs.text,
                    theirs.answer,
                    theirs.finish_reason,
                )
                assert mine.token_ids == theirs.token_ids
                assert mine.coherence == pytest.approx(theirs.coherence, abs=1e-5)


def test_looks_are_counted_and_beginnings_are_not_repeated(looking):
    for question in QUESTIONS:
        result = looking.solve(question)
        looks, candidates = result.usage["look"], result.usage["candidate"]
        assert looks.sequences == 16 and looks.generated_tokens <= 16 * 8
        length = sum(c.generated_tokens for c in result.candidates)
        assert candidates.generated_tokens <= length - 8 * candidates.sequences
        begun = [c.token_ids[:8] for c in result.candidates]
        assert len(set(begun)) == len(begun)
        behaviours = result.trace[0]["pool"]["behaviours"]
        assert result.trace[-1]["ended"] == ("exhausted" if len(begun) == behaviours else "rounds")


@pytest.mark.slow
@pytest.mark.parametrize("features", ["point", "soft_token", "next_token", "hidden_state"])
def test_every_feature_searches(features):
    with SoftReasoner.from_pretrained("demo", overrides=[*POOL, f"features={features}"]) as reasoner:
        result = reasoner.solve(QUESTIONS[0])
        assert len({c.u for c in result.candidates}) == len(result.candidates) == 16
        assert ("look" in result.usage) == (features in ("next_token", "hidden_state"))
        again = reasoner.solve(QUESTIONS[0])
        assert again.candidates == result.candidates


def test_equal_soft_tokens_are_looked_at_and_tried_once():
    discrete = ["embedding=token_simplex", "embedding.dim=5", "embedding.tau=1e9", "features=lookahead"]
    with SoftReasoner.from_pretrained("demo", overrides=[*POOL, *discrete]) as reasoner:
        result = reasoner.solve(QUESTIONS[0])
        assert result.usage["look"].sequences <= 5 and len(result.candidates) <= 5
        assert result.trace[-1]["ended"] == "exhausted"


def test_features_need_a_pool():
    with pytest.raises(UserError, match="candidate_points=pool"):
        SoftReasoner.from_pretrained("demo", overrides=["features=soft_token"])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["soft_reasoning", "random_embedding"])
def test_the_search_and_its_control_look_at_the_same_pool(method):
    parts = ["embedding=token_simplex", "candidate_points=pool", "features=next_token", "surrogate=features"]
    with SoftReasoner.from_pretrained("demo", method=method, overrides=parts) as reasoner:
        result = reasoner.solve(QUESTIONS[1])
        assert result.usage["look"].sequences == 64 and result.usage["look"].generated_tokens == 0
        points = torch.randn(64, 25, dtype=torch.float64, generator=generator_for(0, QUESTIONS[1], "initial"))
        pool = {tuple(point) for point in points.tolist()}
        assert all(c.u in pool for c in result.candidates)
