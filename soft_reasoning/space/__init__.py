"""The space in which a question is searched: it turns points into candidates with rewards."""

from soft_reasoning.space.pool import PointPool
from soft_reasoning.space.search_space import SearchSpace, SpaceSettings

__all__ = ["PointPool", "SearchSpace", "SpaceSettings"]
