"""The space in which a question is searched: it turns points into candidates with rewards."""

from soft_reasoning.space.search_space import Propose, SearchSpace, SpaceSettings

__all__ = ["Propose", "SearchSpace", "SpaceSettings"]
