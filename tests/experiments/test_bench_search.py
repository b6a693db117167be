"""experiments/bench_search.py: pooled sets of problems."""

import torch

from experiments import bench_search


def test_regret_is_to_the_optimum_of_each_set():
    boxes = [bench_search.BOXES["Branin"](2, seed, 5) for seed in (0, 1)]
    best = torch.stack([box.optimum for box in boxes]).repeat_interleave(2)[None, :, None]
    assert boxes[0].optimum != boxes[1].optimum
    assert bench_search.cell(best, best - 1, boxes) == "0.000 (-1.000 +- 0.000)"
