"""``embedding.sigma=auto``: what a scale tells, and the scale that the bundled model gets."""

import math

import pytest
import torch

from soft_reasoning import SoftReasoner
from soft_reasoning.space.sigma import GRID, divergence, smallest_near_best

QUESTION = (
    "Sam has 20 cards. 1) Sam buys 3 packs of 4 cards. 2) Sam loses 5. How many cards does Sam have now?"
)


def test_divergence_is_what_the_next_token_tells_about_the_point():
    same = torch.tensor([[0.25, 0.75]] * 4)
    assert divergence(same) == pytest.approx(0.0, abs=1e-7)
    assert divergence(torch.eye(4)) == pytest.approx(math.log(4))
    assert divergence(torch.full((4, 4), 0.25)) == pytest.approx(0.0, abs=1e-7)  # flat: the prompt is lost
    assert divergence(torch.stack([same[:, :2], torch.eye(4)[:, :2]])).shape == (2,)


def test_the_smallest_of_those_near_the_best_is_taken():
    assert smallest_near_best([0.0, 0.5, 0.97, 1.0, 0.99]) == 2
    assert smallest_near_best([0.0, 0.0]) == 0


def test_auto_is_the_scale_that_was_best_for_the_bundled_model():
    """On validation problems random points at 8 and 16 are right most often (experiments/results/demo.md)."""
    run = ["embedding=gaussian", "embedding.dim=20", "search.rounds=0"]
    with SoftReasoner.from_pretrained("demo", overrides=[*run, "embedding.sigma=auto"]) as reasoner:
        auto = reasoner.solve(QUESTION)
        again = reasoner.solve(QUESTION)
    with SoftReasoner.from_pretrained("demo", overrides=[*run, "embedding.sigma=8"]) as reasoner:
        chosen = reasoner.solve(QUESTION)
    assert auto.trace[0]["sigma"] == 8.0 and 8.0 in GRID
    texts = [[c.text for c in result.candidates] for result in (auto, again, chosen)]
    assert texts[0] == texts[1] == texts[2]
