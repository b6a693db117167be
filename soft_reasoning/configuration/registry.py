"""What can be chosen by name: for each group, a name -> a class with the options that differ.

A class's signature holds the defaults of its options, and its docstring their meaning. Python makes objects
of these entries (:mod:`~soft_reasoning.configuration.parts`), and the groups of the command line are
generated from them (``cli.groups``). A text ``"${model.sigma}"`` refers to a value of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from soft_reasoning.answers import Grader, LmEvalGrader, MathVerifyGrader
from soft_reasoning.judge.final import RULES, FinalAnswer
from soft_reasoning.judge.model_verifier import ModelVerifier, NamedChoice
from soft_reasoning.judge.programs import ProgramVerifier
from soft_reasoning.judge.released import ReleasedGrader, ReleasedSolution, ReleasedVote
from soft_reasoning.judge.reward import Reward
from soft_reasoning.judge.verifier import NoVerifier, Oracle
from soft_reasoning.method.cot_decoding import CotDecoding
from soft_reasoning.method.mixed_consistency import MixedConsistency
from soft_reasoning.method.prefix_scorer import PrefixScorer
from soft_reasoning.method.program_consistency import ProgramConsistency
from soft_reasoning.method.random_soft_prompts import RandomSoftPrompts
from soft_reasoning.method.rap import ReasoningViaPlanning
from soft_reasoning.method.sampling import ChainOfThought, SelfConsistency
from soft_reasoning.method.soft_reasoning import SoftReasoning
from soft_reasoning.method.soft_token import SoftToken
from soft_reasoning.method.verified_sampling import VerifiedSampling
from soft_reasoning.method.verifier_only import VerifierOnly
from soft_reasoning.search import (
    BayesianOptimiser,
    GaussianEmbedding,
    RandomOptimiser,
    Stopping,
    Surrogate,
    TokenSimplexEmbedding,
)
from soft_reasoning.search.acquisition import (
    NoiseAdaptiveExpectedImprovement,
    PrintedAdaptiveEI,
    ReleasedEI,
)
from soft_reasoning.search.points import (
    KrigingBeliever,
    LocalCandidates,
    NormalCandidates,
    TopK,
    UniformCandidates,
)
from soft_reasoning.task.probe import HiddenStateJudge
from soft_reasoning.types import Sampling

Target: TypeAlias = Callable[..., Any] | str
"""A class, or the dotted name of one that is imported when it is chosen."""


class Part:
    """A choice: a class with the options that the choice gives it.

    A field with the name of a group (``verifier``, or ``optimiser`` for the group ``search``) that is not
    given is that group's choice.

    Args:
        target: The class.
        partial: Whether the class is called later, with more arguments.
        short: Short options with the fields that they set; None is those of the class or the group.
        chooses: Choices of other groups that this one makes the default.
        values: Options that differ from the signature of ``target``; a Part is a part inside.
    """

    def __init__(
        self,
        target: Target,
        /,
        *,
        partial: bool = False,
        short: Mapping[str, str] | None = None,
        chooses: Mapping[str, str] | None = None,
        **values: Any,
    ) -> None:
        self.target, self.partial, self.short = target, partial, short
        self.chooses: Mapping[str, str] = chooses or {}
        self.values: Mapping[str, Any] = values


EMBEDDINGS = {
    "token_simplex": Part(TokenSimplexEmbedding),
    "gaussian": Part(GaussianEmbedding, sigma="${model.sigma}"),
    # x = A u, the public code's
    "released": Part(GaussianEmbedding, units="absolute", anchor="none"),
}

SEARCHES = {
    "bayesian": Part(BayesianOptimiser),
    "observed": Part(BayesianOptimiser, incumbent="observed"),  # the paper's
    "random": Part(RandomOptimiser),  # the control
}

_KERNEL, _MEAN = Part("gpytorch.kernels.RBFKernel"), Part("gpytorch.means.ZeroMean")
_GP: dict[str, Any] = {"kernel": _KERNEL, "mean": _MEAN}  # any classes of GPyTorch
_UNIT: dict[str, Any] = {**_GP, "lengthscale": 1.0, "noise": 0.05, "variance": 1.0, "centred": False}
_NOISELESS: dict[str, Any] = {**_UNIT, "noise": 1e-16}
SURROGATES = {
    "rbf": Part(Surrogate, **_GP),
    "map": Part(Surrogate, **_GP, fit="map"),  # fitted to each problem
    "map_ard": Part(Surrogate, **_GP, fit="map", ard=True),  # a lengthscale for each dimension
    "paper": Part(Surrogate, **_UNIT),  # sqrt(d), at which the search can learn
    "rbf_unit": Part(Surrogate, **_UNIT, scaling="absolute"),  # 1 at any d, as in the public code
    "released": Part(Surrogate, **_NOISELESS, scaling="absolute"),
}

ACQUISITIONS = {
    "adaptive_ei": Part(NoiseAdaptiveExpectedImprovement, partial=True, delta=0.1),
    "printed_adaptive_ei": Part(PrintedAdaptiveEI, partial=True, delta=0.1),
    "released": Part(ReleasedEI, partial=True),  # the public code's
    "ei": Part("botorch.acquisition.ExpectedImprovement", partial=True),
    "log_ei": Part("botorch.acquisition.LogExpectedImprovement", partial=True),
    "pi": Part("botorch.acquisition.analytic.LogProbabilityOfImprovement", partial=True),
    "ucb": Part("botorch.acquisition.UpperConfidenceBound", partial=True, beta=2.0),
}

CANDIDATE_POINTS = {
    "local": Part(LocalCandidates),
    "normal": Part(NormalCandidates),  # the paper's
    "uniform": Part(UniformCandidates),  # the public code's
}

BATCHES = {"kriging_believer": Part(KrigingBeliever), "top_k": Part(TopK)}  # the second is the paper's

_BY_VOTES = ("settled", "agreement", "sure", "unanimous", "none")  # they have no threshold
STOPPINGS = {
    **{rule: Part(Stopping, rule=rule, short={"rounds": "rounds"}) for rule in _BY_VOTES},
    **{rule: Part(Stopping, rule=rule) for rule in ("improvement", "difference")},
}

REWARDS = {
    "default": Part(Reward),
    "sum_logprob": Part(Reward, coherence="sum_logprob"),  # as the paper prints it
}

FINALS = {**{rule: Part(FinalAnswer, rule=rule) for rule in RULES}, "released": Part(ReleasedVote)}

DECODINGS = {
    "sampled": Part(Sampling, temperature="${model.temperature}", top_k=50),
    "greedy": Part(Sampling),  # the paper: the answer is a function of the soft token
}

_ALONE: dict[str, Any] = {"presentation": "one_by_one"}
_JUDGE: dict[str, Any] = {**_ALONE, "name": "single_judge", "judgement": Part(NamedChoice)}
VERIFIERS = {
    "program": Part(ProgramVerifier),
    "multi_generate": Part(ModelVerifier),  # the paper's
    "single_generate": Part(ModelVerifier, name="single_generate", **_ALONE),
    "multi_judge": Part(ModelVerifier, name="multi_judge", judgement=Part(NamedChoice)),
    "single_judge": Part(ModelVerifier, **_JUDGE, confidence="sequence_prob"),
    "probability": Part(ModelVerifier, **_JUDGE, confidence="verdict_prob"),
    "fresh": Part(ModelVerifier, name="fresh", presentation="unseen"),  # a control
    "released": Part(ModelVerifier, presentation="with_analyses", judgement=Part(ReleasedSolution)),
    "probe": Part(HiddenStateJudge),
    "none": Part(NoVerifier),
    "oracle": Part(Oracle, chooses={"final": "reward_vote"}),  # a perfect judge is not to be outvoted
}

_VOTES: dict[str, Any] = {
    "decoding": Part(Sampling, temperature=0.8, top_k=50),
    "verifier": Part(NoVerifier),
    "reward": Part(Reward),
    "final": Part(FinalAnswer, rule="vote"),
}
METHODS = {
    "soft_reasoning": Part(SoftReasoning),
    "random_embedding": Part(
        SoftReasoning, name="random_embedding", optimiser=Part(RandomOptimiser)
    ),  # the control
    "verified_sampling": Part(VerifiedSampling),
    "best_of_n": Part(
        VerifiedSampling,
        name="best_of_n",
        short={"k": "samples"},
        stopping=Part(Stopping, rounds=0, rule="none"),
        final=Part(FinalAnswer, rule="best_reward"),
    ),
    "verifier_only": Part(VerifierOnly, verifier=Part(ModelVerifier)),
    "cot": Part(ChainOfThought),
    "self_consistency": Part(SelfConsistency),
    "fire": Part(SelfConsistency, name="fire", first_temperature=30.0, first_top_k=50),
    "random_soft_prompts": Part(RandomSoftPrompts),
    "soft_token": Part(SoftToken),
    "cot_decoding": Part(CotDecoding),
    "cot_decoding_original": Part(
        CotDecoding, name="cot_decoding_original", paths=10, continuation="greedy", aggregate="delta_sum"
    ),
    "prefix_scorer": Part(PrefixScorer),
    "rap": Part(ReasoningViaPlanning),
    "program_consistency": Part(ProgramConsistency),
    "program": Part(ProgramConsistency, name="program", samples=1),
    "mixed_consistency": Part(MixedConsistency),
    "adaptive_consistency": Part(  # arXiv 2305.11860
        VerifiedSampling,
        name="adaptive_consistency",
        samples=1,
        stopping=Part(Stopping, rounds=39, rule="settled", confidence=0.95),
        **_VOTES,
    ),
    "early_stopping_consistency": Part(  # arXiv 2401.10480
        VerifiedSampling,
        name="early_stopping_consistency",
        samples=5,
        stopping=Part(Stopping, rounds=7, rule="unanimous"),
        **_VOTES,
    ),
}

PARTS: Mapping[str, Mapping[str, Part]] = {
    "method": METHODS,
    "embedding": EMBEDDINGS,
    "search": SEARCHES,
    "surrogate": SURROGATES,
    "acquisition": ACQUISITIONS,
    "candidate_points": CANDIDATE_POINTS,
    "batch": BATCHES,
    "stopping": STOPPINGS,
    "verifier": VERIFIERS,
    "reward": REWARDS,
    "final": FINALS,
    "decoding": DECODINGS,
}
"""The groups whose choices are a method or parts of one."""

_PAPER = {
    "embedding": "gaussian",
    "decoding": "greedy",
    "search": "observed",
    "surrogate": "paper",
    "acquisition": "adaptive_ei",
    "candidate_points": "normal",
    "batch": "top_k",
    "stopping": "difference",
    "verifier": "multi_generate",
    "final": "best_reward",
}
PRESETS: Mapping[str, Mapping[str, str]] = {
    # Mixtures of the likeliest first tokens, sampled completions, judged by programs that the model writes
    # from the question alone, until the vote is settled. Where a prompt asks for no numbers the model judges
    # each candidate alone (verifier=single_judge).
    "default": {},
    # The paper's text, with its evident errors corrected: the sign in expected improvement, and a coherence
    # that breaks ties, as the paper states (the mean probability; the printed sum of log-probabilities would
    # outweigh the verifier). The paper gives no lengthscale and no noise; with sqrt(d) the search can learn.
    # It maximises the reward and states no other rule, so the candidate of the highest reward is the answer.
    # All departures: docs/paper.md.
    "paper": _PAPER,
    # The two formulas that ``paper`` corrects as they are printed, and the public code's lengthscale of 1.
    "paper_literal": {
        **_PAPER,
        "surrogate": "rbf_unit",
        "acquisition": "printed_adaptive_ei",
        "reward": "sum_logprob",
    },
    # The public code: no anchor, uniform candidate points, EI with the sign reversed and the variance as
    # deviation; the verifier sees its earlier analyses; answers are read and voted on as strings. Without
    # the verifier's part of the reward (reward.verifier_weight=0) it still runs and votes, as there.
    "released": {
        **_PAPER,
        "embedding": "released",
        "surrogate": "released",
        "acquisition": "released",
        "candidate_points": "uniform",
        "stopping": "improvement",
        "verifier": "released",
        "final": "released",
        "grader": "released",
    },
}
"""Choices of Soft Reasoning's parts under one name."""
PRESET_TOKENS = 300
"""Tokens per completion under every preset but the default, as in the paper."""

DEFAULTS = {
    "method": "soft_reasoning",
    "embedding": "token_simplex",
    "search": "bayesian",
    "surrogate": "rbf",
    "acquisition": "adaptive_ei",
    "candidate_points": "local",
    "batch": "kriging_believer",
    "stopping": "settled",
    "verifier": "program",
    "reward": "default",
    "final": "weighted_vote",
    "decoding": "sampled",
    "engine": "hf",
    "grader": "default",
}
"""The choice of each group where none is named."""

GRADERS = {
    "default": Part(Grader),
    "lm_eval_flexible": Part(LmEvalGrader, filter="flexible-extract"),
    "lm_eval_strict": Part(LmEvalGrader, filter="strict-match"),
    "math_verify": Part(MathVerifyGrader),
    "released": Part(ReleasedGrader),
}


def _of_model(*names: str) -> dict[str, Any]:
    """Return options of an engine that are the model's."""
    return {name: f"${{model.{name}}}" for name in names}


_LOADED = _of_model(
    "path", "revision", "dtype", "device_map", "attn_implementation", "quantization", "trust_remote_code"
)
ENGINES = {
    "hf": Part(
        "soft_reasoning.engine.huggingface.HuggingFaceEngine",
        **_LOADED,
        **_of_model("adapter"),
        device=None,
        max_batch_tokens=None,
        max_batch_rows=None,
        threads=None,
    ),
    "served": Part(
        "soft_reasoning.engine.served.served",
        url="${model.path}",
        **_of_model("tokenizer", "dtype", "revision", "trust_remote_code"),
    ),
    "vllm": Part(
        "soft_reasoning.engine.served.vllm",
        **_of_model("path", "dtype", "revision", "trust_remote_code"),
        tensor_parallel_size=1,
    ),
    "llamacpp": Part(
        "soft_reasoning.engine.served.llamacpp",
        **_of_model("path"),
    ),
    "fake": Part("soft_reasoning.engine.fake.FakeEngine"),
}

_RUNS = "soft_reasoning.lab.runs"
GROUPS: Mapping[str, Mapping[str, Part]] = {
    **PARTS,
    "engine": ENGINES,
    "grader": GRADERS,
    "launcher": {
        "local": Part(f"{_RUNS}.runner.LocalLauncher"),
        "ray": Part(f"{_RUNS}.ray.RayLauncher", address="local", workers=None, cpus=1, gpus=None),
    },
}
"""All groups of registered choices; those of models, data sets, prompts and experiments are data."""
