"""What can be chosen by name: for each group, a name -> a class with the options that differ.

A class's signature holds the defaults of its options, and its docstring their meaning. Python makes objects
of these entries (:mod:`~soft_reasoning.configuration.parts`), and the groups of the command line are
generated from them (``cli.groups``). A text ``"${model.sigma}"`` refers to a value of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Part:
    """A class with the options that a choice gives it; :func:`part` writes one.

    A field with the name of a group (``verifier``, or ``optimiser`` for the group ``search``) that is not
    given is that group's choice.

    Attributes:
        target: The class.
        values: Options that differ from its signature; a Part is a part inside.
        partial: Whether the class is called later, with more arguments.
        short: Short options with the fields that they set; None is those of the class.
        chooses: Choices of other groups that this one makes the default.
    """

    target: Target
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    partial: bool = False
    short: Mapping[str, str] | None = None
    chooses: Mapping[str, str] = field(default_factory=dict[str, str])


def part(
    target: Target,
    /,
    *,
    partial: bool = False,
    short: Mapping[str, str] | None = None,
    chooses: Mapping[str, str] | None = None,
    **values: Any,
) -> Part:
    """Return the choice of ``target`` with the options ``values``."""
    return Part(target, values, partial, short, chooses or {})


def _named(target: Target, **values: Any) -> dict[str, Part]:
    """Return a method whose ``name`` is that of its choice."""
    return {values["name"]: part(target, **values)}


_DIM = {"d": "dim"}
EMBEDDINGS = {
    "token_simplex": part(TokenSimplexEmbedding, short=_DIM),
    "gaussian": part(GaussianEmbedding, short=_DIM, sigma="${model.sigma}"),
    # x = A u, the public code's
    "released": part(GaussianEmbedding, short=_DIM, units="absolute", anchor="none"),
}

SEARCHES = {
    "bayesian": part(BayesianOptimiser),
    "observed": part(BayesianOptimiser, incumbent="observed"),  # the paper's
    "random": part(RandomOptimiser),  # the control
}

_KERNEL, _MEAN = part("gpytorch.kernels.RBFKernel"), part("gpytorch.means.ZeroMean")
_GP: dict[str, Any] = {
    "kernel": _KERNEL,
    "mean": _MEAN,
    "short": {"lambda": "noise"},
}  # any classes of GPyTorch
_UNIT: dict[str, Any] = {**_GP, "lengthscale": 1.0, "noise": 0.05, "variance": 1.0, "centred": False}
_NOISELESS: dict[str, Any] = {**_UNIT, "noise": 1e-16}
SURROGATES = {
    "rbf": part(Surrogate, **_GP),
    "map": part(Surrogate, **_GP, fit="map"),  # fitted to each problem
    "map_ard": part(Surrogate, **_GP, fit="map", ard=True),  # a lengthscale for each dimension
    "paper": part(Surrogate, **_UNIT),  # sqrt(d), at which the search can learn
    "rbf_unit": part(Surrogate, **_UNIT, scaling="absolute"),  # 1 at any d, as in the public code
    "released": part(Surrogate, **_NOISELESS, scaling="absolute"),
}

_DELTA = {"delta": "delta"}
ACQUISITIONS = {
    "adaptive_ei": part(NoiseAdaptiveExpectedImprovement, partial=True, short=_DELTA, delta=0.1),
    "printed_adaptive_ei": part(PrintedAdaptiveEI, partial=True, short=_DELTA, delta=0.1),
    "released": part(ReleasedEI, partial=True),  # the public code's
    "ei": part("botorch.acquisition.ExpectedImprovement", partial=True),
    "log_ei": part("botorch.acquisition.LogExpectedImprovement", partial=True),
    "pi": part("botorch.acquisition.analytic.LogProbabilityOfImprovement", partial=True),
    "ucb": part("botorch.acquisition.UpperConfidenceBound", partial=True, beta=2.0),
}

CANDIDATE_POINTS = {
    "local": part(LocalCandidates),
    "normal": part(NormalCandidates),  # the paper's
    "uniform": part(UniformCandidates),  # the public code's
}

BATCHES = {"kriging_believer": part(KrigingBeliever), "top_k": part(TopK)}  # the second is the paper's

_ROUNDS = {"rounds": "rounds"}
_BY_REWARD = {**_ROUNDS, "epsilon": "threshold"}
STOPPINGS = {
    **{
        rule: part(Stopping, rule=rule, short=_ROUNDS)
        for rule in ("settled", "agreement", "sure", "unanimous", "none")
    },
    **{rule: part(Stopping, rule=rule, short=_BY_REWARD) for rule in ("improvement", "difference")},
}

REWARDS = {
    "default": part(Reward),
    "sum_logprob": part(Reward, coherence="sum_logprob"),  # as the paper prints it
}

FINALS = {**{rule: part(FinalAnswer, rule=rule) for rule in RULES}, "released": part(ReleasedVote)}

_WARMTH = {"temperature": "temperature"}
DECODINGS = {
    "sampled": part(Sampling, short=_WARMTH, temperature="${model.temperature}", top_k=50),
    "greedy": part(Sampling, short=_WARMTH),  # the paper: the answer is a function of the soft token
}

_ALONE: dict[str, Any] = {"presentation": "one_by_one"}
_JUDGE: dict[str, Any] = {**_ALONE, "name": "single_judge", "judgement": part(NamedChoice)}
VERIFIERS = {
    "program": part(ProgramVerifier),
    "multi_generate": part(ModelVerifier),  # the paper's
    "single_generate": part(ModelVerifier, name="single_generate", **_ALONE),
    "multi_judge": part(ModelVerifier, name="multi_judge", judgement=part(NamedChoice)),
    "single_judge": part(ModelVerifier, **_JUDGE, confidence="sequence_prob"),
    "probability": part(ModelVerifier, **_JUDGE, confidence="verdict_prob"),
    "fresh": part(ModelVerifier, name="fresh", presentation="unseen"),  # a control
    "released": part(ModelVerifier, presentation="with_analyses", judgement=part(ReleasedSolution)),
    "probe": part(HiddenStateJudge),
    "none": part(NoVerifier),
    "oracle": part(Oracle, chooses={"final": "reward_vote"}),  # a perfect judge is not to be outvoted
}

_ONLY_K = {"k": "samples"}
_VOTES: dict[str, Any] = {
    "decoding": part(Sampling, temperature=0.8, top_k=50),
    "verifier": part(NoVerifier),
    "reward": part(Reward),
    "final": part(FinalAnswer, rule="vote"),
}
METHODS = {
    "soft_reasoning": part(SoftReasoning),
    **_named(SoftReasoning, name="random_embedding", optimiser=part(RandomOptimiser)),  # the control
    "verified_sampling": part(VerifiedSampling),
    **_named(
        VerifiedSampling,
        name="best_of_n",
        short=_ONLY_K,
        stopping=part(Stopping, rounds=0, rule="none"),
        final=part(FinalAnswer, rule="best_reward"),
    ),
    "verifier_only": part(VerifierOnly, verifier=part(ModelVerifier)),
    "cot": part(ChainOfThought),
    "self_consistency": part(SelfConsistency),
    **_named(SelfConsistency, name="fire", first_temperature=30.0, first_top_k=50),
    **_named(
        SelfConsistency,
        name="several_temperatures",
        short=_ONLY_K,
        samples=20,
        temperatures=[0.4, 0.6, 0.8, 1.0, 1.2],
    ),
    "random_soft_prompts": part(RandomSoftPrompts),
    "soft_token": part(SoftToken),
    "cot_decoding": part(CotDecoding),
    **_named(
        CotDecoding, name="cot_decoding_original", paths=10, continuation="greedy", aggregate="delta_sum"
    ),
    "prefix_scorer": part(PrefixScorer),
    "rap": part(ReasoningViaPlanning),
    "program_consistency": part(ProgramConsistency),
    **_named(ProgramConsistency, name="program", samples=1),
    "mixed_consistency": part(MixedConsistency),
    **_named(  # arXiv 2305.11860
        VerifiedSampling,
        name="adaptive_consistency",
        samples=1,
        stopping=part(Stopping, rounds=39, rule="settled", confidence=0.95),
        **_VOTES,
    ),
    **_named(  # arXiv 2401.10480
        VerifiedSampling,
        name="early_stopping_consistency",
        samples=5,
        stopping=part(Stopping, rounds=7, rule="unanimous"),
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
    "default": part(Grader),
    "lm_eval_flexible": part(LmEvalGrader, filter="flexible-extract"),
    "lm_eval_strict": part(LmEvalGrader, filter="strict-match"),
    "math_verify": part(MathVerifyGrader),
    "released": part(ReleasedGrader),
}


def _of_model(*names: str) -> dict[str, Any]:
    """Return options of an engine that are the model's."""
    return {name: f"${{model.{name}}}" for name in names}


_LOADED = _of_model(
    "path", "revision", "dtype", "device_map", "attn_implementation", "quantization", "trust_remote_code"
)
ENGINES = {
    "hf": part(
        "soft_reasoning.engine.huggingface.HuggingFaceEngine",
        **_LOADED,
        **_of_model("adapter"),
        device=None,
        max_batch_tokens=None,
        max_batch_rows=None,
        threads=None,
    ),
    "served": part(
        "soft_reasoning.engine.served.served",
        url="${model.path}",
        **_of_model("tokenizer", "dtype", "revision", "trust_remote_code"),
    ),
    "vllm": part(
        "soft_reasoning.engine.served.vllm",
        **_of_model("path", "dtype", "revision", "trust_remote_code"),
        tensor_parallel_size=1,
    ),
    "llamacpp": part(
        "soft_reasoning.engine.served.llamacpp",
        **_of_model("path"),
    ),
    "fake": part("soft_reasoning.engine.fake.FakeEngine"),
}

_RUNS = "soft_reasoning.lab.runs"
_TRACKER = f"{_RUNS}.tracking.Tracker"
GROUPS: Mapping[str, Mapping[str, Part]] = {
    **PARTS,
    "engine": ENGINES,
    "grader": GRADERS,
    "launcher": {
        "local": part(f"{_RUNS}.runner.LocalLauncher"),
        "ray": part(f"{_RUNS}.ray.RayLauncher", address="local", workers=None, cpus=1, gpus=None),
    },
    "logging": {
        "tensorboard": part(_TRACKER, name="tensorboard"),
        "wandb": part(_TRACKER, name="wandb", project="soft_reasoning"),
        "mlflow": part(_TRACKER, name="mlflow", project="soft_reasoning"),
    },
}
"""All groups of registered choices; those of models, data sets, prompts and experiments are data."""
