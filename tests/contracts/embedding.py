"""What every embedding must do; a test file parametrises over these."""

from __future__ import annotations

import pytest
import torch

D = 64


def bound(embedding, *, m=1, seed=0):
    """The subspace around m random anchors, with the likely tokens it asks for."""
    generator = torch.Generator().manual_seed(5)
    anchor = torch.randn(m, D, generator=generator)
    tokens = torch.randn(embedding.likely_tokens, D, generator=generator) if embedding.likely_tokens else None
    return embedding.bind(anchor=anchor, rms=0.5, seed=seed, tokens=tokens)


def points(n, dim):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(6))


def shapes_and_types(embedding):
    for m in (1, 3):
        subspace = bound(embedding, m=m)
        assert subspace.dim == m * embedding.dim
        x = subspace(points(4, subspace.dim))
        assert x.shape == (4, m, D) and x.dtype == torch.float32 and torch.isfinite(x).all()


def a_point_alone_gets_the_same_soft_tokens(embedding):
    subspace = bound(embedding, m=2)
    U = points(5, subspace.dim)
    together = subspace(U)
    for i in range(5):
        torch.testing.assert_close(subspace(U[i : i + 1])[0], together[i], rtol=0, atol=1e-6)


def the_seed_decides(embedding):
    U = points(3, embedding.dim)
    assert torch.equal(bound(embedding)(U), bound(embedding)(U))


def distinct_points_give_distinct_soft_tokens(embedding):
    subspace = bound(embedding)
    x = subspace(points(10, subspace.dim)).reshape(10, -1)
    assert torch.pdist(x).min() > 1e-4


def a_wrong_shape_is_refused(embedding):
    subspace = bound(embedding)
    with pytest.raises(ValueError, match=str(subspace.dim)):
        subspace(points(2, subspace.dim + 1))
