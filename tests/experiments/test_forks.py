"""Soft tokens at forks of a greedy text."""

import json

import numpy as np
import pytest

from experiments.real_models import forks
from soft_reasoning.types import Completion, FinishReason, TopLogprobs


def test_places_by_hand():
    sure, torn = TopLogprobs((1, 2), (0.0, -30.0)), TopLogprobs((1, 2), (np.log(0.5), np.log(0.5)))
    words = "A b. C d. E f g h i j".split()
    top = tuple(torn if i in (2, 7) else sure for i in range(len(words)))
    completion = Completion(tuple(range(10)), (0.0,) * 10, "", FinishReason.EOS, 1, top_logprobs=top)
    decode = lambda ids: " ".join(words[i] for i in ids)  # noqa: E731
    places = forks.places(completion, decode, np.random.default_rng(0))
    assert places["first"] == 0 and places["fork"] == 2 and places["late"] == 7
    assert 1 <= places["random"] <= 3  # within the first two sentences
    assert forks.entropies(completion)[2] == pytest.approx(np.log(2))


@pytest.mark.slow
def test_a_repeated_command_continues_and_ends_in_a_table(tmp_path):
    path = tmp_path / "forks.jsonl"
    for limit in (1, 2):
        words = [str(path), "model=demo", "dataset=demo", f"limit={limit}"]
        forks.main([*words, "--candidates", "2", "--max-new-tokens", "40"])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({line["id"] for line in lines}) == len(lines) == 2
    assert all(
        len(arm) == (1 if name == "greedy" else 2) for line in lines for name, arm in line["arms"].items()
    )
    table = forks.table(path)
    assert [row[0] for row in table.rows] == ["greedy", "first", "fork", "sampled", "random", "late"]
