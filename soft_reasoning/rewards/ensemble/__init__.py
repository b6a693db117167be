"""Several judges of a candidate together, and weights fitted to labelled questions."""

from soft_reasoning.rewards.ensemble.fitted import FittedWeights
from soft_reasoning.rewards.ensemble.verifier import PARTS, Ensemble

__all__ = ["PARTS", "Ensemble", "FittedWeights"]
