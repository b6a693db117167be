"""Search of a subspace of input embeddings from few noisy rewards, independent of the language model."""

from soft_reasoning.search.acquisition import NoiseAdaptiveExpectedImprovement
from soft_reasoning.search.embedding import Embedding, GaussianEmbedding, Subspace, TokenSimplexEmbedding
from soft_reasoning.search.optimiser import BayesianOptimiser, Optimiser, RandomOptimiser, SearchState
from soft_reasoning.search.points import Proposal
from soft_reasoning.search.stopping import Stopping
from soft_reasoning.search.surrogate import Surrogate

__all__ = [
    "BayesianOptimiser",
    "Embedding",
    "GaussianEmbedding",
    "NoiseAdaptiveExpectedImprovement",
    "Optimiser",
    "Proposal",
    "RandomOptimiser",
    "SearchState",
    "Stopping",
    "Subspace",
    "Surrogate",
    "TokenSimplexEmbedding",
]
