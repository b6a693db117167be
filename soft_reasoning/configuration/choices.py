"""The choices of each group of the configuration, made from the signatures of the classes that they name.

A class's signature holds the defaults of its options, and its docstring their meaning. Here each choice gets
its name, and the values that differ from the signature. A value ``${...}`` refers to another key. ``conf/``
holds the rest: models, data sets, wording, experiments and presets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra_zen import builds
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.answers import Grader, LmEvalGrader, MathVerifyGrader
from soft_reasoning.judge.final import RULES, FinalAnswer
from soft_reasoning.judge.model_verifier import ModelVerifier
from soft_reasoning.judge.probe import ProbeVerifier
from soft_reasoning.judge.programs import ProgramVerifier
from soft_reasoning.judge.released import ReleasedGrader, ReleasedSolution, ReleasedVote, WithAnalyses
from soft_reasoning.judge.review import NamedChoice, OneByOne, WithoutCandidates
from soft_reasoning.judge.reward import Reward
from soft_reasoning.judge.verifier import NoVerifier, Oracle
from soft_reasoning.method.cot import ChainOfThought
from soft_reasoning.method.cot_decoding import CotDecoding
from soft_reasoning.method.mixed_consistency import MixedConsistency
from soft_reasoning.method.prefix_scorer import PrefixScorer
from soft_reasoning.method.program_consistency import ProgramConsistency
from soft_reasoning.method.random_soft_prompts import RandomSoftPrompts
from soft_reasoning.method.rap import ReasoningViaPlanning
from soft_reasoning.method.self_consistency import SelfConsistency
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
from soft_reasoning.search.points import (
    KrigingBeliever,
    LocalCandidates,
    NormalCandidates,
    TopK,
    UniformCandidates,
)
from soft_reasoning.types import Sampling, UserError

Values: TypeAlias = dict[str, Any]
"""Options of a choice by name."""

Target: TypeAlias = Callable[..., Any] | str
"""A class, or the dotted name of one, whose options are then given in full."""

PARTS = (
    *("method", "embedding", "search", "surrogate", "acquisition", "candidate_points", "batch"),
    *("stopping", "verifier", "reward", "final", "decoding"),
)
"""The groups whose choices are a method or parts of one."""

SHORT = set[str]()
"""The keys at the top of the configuration to which options of a method or its parts refer."""


def part(target: Target, /, partial: bool = False, **values: Any) -> dict[str, Any]:
    """Return the configuration of ``target``: all options of its signature, under ``values``."""
    node = {"_target_": target} if isinstance(target, str) else deepcopy(_signature(target, *sorted(values)))
    node |= values | ({"_partial_": True} if partial else {})
    _share_limit(node)
    return node


@cache
def _signature(target: Callable[..., Any], *given: str) -> dict[str, Any]:
    """The options of a class with their defaults, without those that are ``given``."""
    made = builds(target, populate_full_signature=True, zen_exclude=given)
    return cast(dict[str, Any], OmegaConf.to_container(OmegaConf.structured(made)))


def _share_limit(node: dict[str, Any]) -> None:
    """Let the option ``max_new_tokens`` of every part, and of the parts inside, refer to the run's."""
    for name, value in node.items():
        if name == "max_new_tokens":
            node[name] = "${max_new_tokens}"
        elif isinstance(value, dict):
            _share_limit(cast(dict[str, Any], value))


def choice(
    group: str,
    name: str,
    target: Target,
    /,
    *,
    short: Mapping[str, str] | None = None,
    override: Mapping[str, str] | None = None,
    top: Mapping[str, object] | None = None,
    partial: bool = False,
    **values: Any,
) -> None:
    """Register a choice.

    Args:
        group: Its group.
        name: Its name.
        target: The class that it names.
        short: Keys at the top with the option that each stands for; by default those of the class. An option
            of a part that is another choice is left to that choice.
        override: Choices of other groups that it makes the default.
        top: Further values at the top of the configuration.
        partial: Whether the class is called later, with more arguments.
        values: Options that differ from the signature, or refer to other keys.
    """
    node = part(target, partial, **values)
    keys: Values = dict(top or {})
    for key, option in (getattr(target, "short", {}) if short is None else short).items():
        *path, last = option.split(".")
        place: Any = node
        for step in path:
            place = place[step] if isinstance(place, dict) else place
        if isinstance(place, dict):
            keys[key], place[last] = place[last], f"${{{key}}}"
            SHORT.add(key)
    content: Values = {**keys, group: node}
    if override:
        content["defaults"] = [*({f"override /{key}": value} for key, value in override.items()), "_self_"]
    ConfigStore.instance().store(name, OmegaConf.create(content), group, package="_global_")


@cache
def register() -> None:
    """Register all choices with Hydra, once per process."""
    _parts()
    _verifiers()
    _methods()
    _run()


def _parts() -> None:
    choice("embedding", "token_simplex", TokenSimplexEmbedding, short={"d": "dim"})
    choice("embedding", "gaussian", GaussianEmbedding, short={"d": "dim"}, sigma="${model.sigma}")

    choice(
        "search",
        "bayesian",
        BayesianOptimiser,
        surrogate="${surrogate}",
        acquisition="${acquisition}",
        candidate_points="${candidate_points}",
        batch="${batch}",
    )
    choice("search", "random", RandomOptimiser)  # the control

    kernel, mean = part("gpytorch.kernels.RBFKernel"), part("gpytorch.means.ZeroMean")
    short = {"lambda": "noise"}  # the paper's name
    gp: Values = {"kernel": kernel, "mean": mean, "short": short}  # any classes of GPyTorch
    unit: Values = {**gp, "lengthscale": 1.0, "noise": 0.05, "variance": 1.0, "centred": False}
    choice("surrogate", "rbf", Surrogate, **gp)
    choice("surrogate", "map", Surrogate, **gp, fit="map")  # fitted to each problem
    ard: Values = {**gp, "kernel": {**kernel, "ard_num_dims": "${product:${d},${method.scope}}"}}
    choice("surrogate", "map_ard", Surrogate, **ard, fit="map")  # a lengthscale for each dimension
    choice("surrogate", "paper", Surrogate, **unit)  # sqrt(d), at which the search can learn
    choice(
        "surrogate", "rbf_unit", Surrogate, **unit, scaling="absolute"
    )  # 1 at any d, as in the public code
    unit["noise"] = 1e-16
    choice("surrogate", "released", Surrogate, **unit, scaling="absolute")

    ours, delta = "soft_reasoning.search.acquisition.", {"delta": "delta"}
    adaptive: Values = {"partial": True, "short": delta, "delta": 0.1}
    choice("acquisition", "adaptive_ei", f"{ours}NoiseAdaptiveExpectedImprovement", **adaptive)
    choice("acquisition", "printed_adaptive_ei", f"{ours}PrintedAdaptiveEI", **adaptive)
    choice("acquisition", "released", f"{ours}ReleasedEI", partial=True)  # the public code's
    botorch = "botorch.acquisition."
    choice("acquisition", "ei", f"{botorch}ExpectedImprovement", partial=True)
    choice("acquisition", "log_ei", f"{botorch}LogExpectedImprovement", partial=True)
    choice("acquisition", "pi", f"{botorch}analytic.LogProbabilityOfImprovement", partial=True)
    choice("acquisition", "ucb", f"{botorch}UpperConfidenceBound", partial=True, beta=2.0)

    choice("candidate_points", "local", LocalCandidates)
    choice("candidate_points", "normal", NormalCandidates)  # the paper
    choice("candidate_points", "uniform", UniformCandidates)  # the public code

    choice("batch", "kriging_believer", KrigingBeliever)
    choice("batch", "top_k", TopK)  # the paper

    for rule in ("settled", "agreement", "sure", "unanimous", "none"):
        choice("stopping", rule, Stopping, short={"rounds": "rounds"}, rule=rule)
    for rule in ("improvement", "difference"):
        choice("stopping", rule, Stopping, short={"rounds": "rounds", "epsilon": "threshold"}, rule=rule)

    choice("reward", "default", Reward)

    for rule in RULES:
        choice("final", rule, FinalAnswer, rule=rule)
    choice("final", "released", ReleasedVote)

    warm: Values = {"short": {"temperature": "temperature"}}
    choice("decoding", "sampled", Sampling, **warm, temperature="${model.temperature}", top_k=50)
    choice("decoding", "greedy", Sampling, **warm)  # the paper: the answer is a function of the soft token


def _verifiers() -> None:
    alone: Values = {"presentation": part(OneByOne)}
    named = part(NamedChoice)
    first = "${oc.select:prompt.wording.reviews.multi_judge.first,1}"  # its number in the prompt
    choice("verifier", "program", ProgramVerifier)
    choice("verifier", "multi_generate", ModelVerifier)  # the paper
    choice("verifier", "single_generate", ModelVerifier, name="single_generate", **alone)
    choice("verifier", "multi_judge", ModelVerifier, name="multi_judge", judgement={**named, "first": first})
    judge: Values = {**alone, "name": "single_judge", "judgement": named}
    choice("verifier", "single_judge", ModelVerifier, **judge, confidence="sequence_prob")
    choice("verifier", "probability", ModelVerifier, **judge, confidence="verdict_prob")
    choice(
        "verifier", "fresh", ModelVerifier, name="fresh", presentation=part(WithoutCandidates)
    )  # a control
    released: Values = {"presentation": part(WithAnalyses), "judgement": part(ReleasedSolution)}
    choice("verifier", "released", ModelVerifier, **released)
    choice("verifier", "probe", ProbeVerifier)
    choice("verifier", "none", NoVerifier)
    # A perfect judge is not to be outvoted.
    choice("verifier", "oracle", Oracle, override={"final": "reward_vote"})


def _methods() -> None:
    parts: Values = {name: f"${{{name}}}" for name in ("decoding", "stopping", "verifier", "reward", "final")}
    search: Values = {**parts, "embedding": "${embedding}", "optimiser": "${search}"}
    choice("method", "soft_reasoning", SoftReasoning, **search)
    choice(
        "method",
        "random_embedding",  # the control
        SoftReasoning,
        override={"search": "random"},
        name="random_embedding",
        **search,
    )
    choice("method", "verified_sampling", VerifiedSampling, **parts)
    only_k: Values = {"short": {"k": "samples"}}
    once: Values = {
        "stopping": part(Stopping, rounds=0, rule="none"),
        "final": part(FinalAnswer, rule="best_reward"),
    }
    choice("method", "best_of_n", VerifiedSampling, **only_k, **{**parts, **once}, name="best_of_n")
    choice("method", "verifier_only", VerifierOnly, verifier=part(ModelVerifier))

    choice("method", "cot", ChainOfThought)
    choice("method", "self_consistency", SelfConsistency)
    fire: Values = {"name": "fire", "first_temperature": 30.0, "first_top_k": 50}
    choice("method", "fire", SelfConsistency, **fire)
    temperatures: Values = {"name": "several_temperatures", "temperatures": [0.4, 0.6, 0.8, 1.0, 1.2]}
    choice("method", "several_temperatures", SelfConsistency, **only_k, samples=20, **temperatures)
    choice("method", "random_soft_prompts", RandomSoftPrompts)
    choice("method", "soft_token", SoftToken)
    choice("method", "cot_decoding", CotDecoding)
    original: Values = {
        "continuation": "greedy",
        "aggregate": "delta_sum",
        "name": "cot_decoding_original",
    }
    choice("method", "cot_decoding_original", CotDecoding, paths=10, **original)
    choice("method", "prefix_scorer", PrefixScorer)
    shots = "${oc.select:dataset.shots,0}"
    choice("method", "rap", ReasoningViaPlanning, shots=shots)

    choice("method", "program_consistency", ProgramConsistency)
    choice("method", "program", ProgramConsistency, samples=1, name="program")
    choice("method", "mixed_consistency", MixedConsistency)

    _votes("adaptive_consistency", samples=1, rounds=39, rule="settled", confidence=0.95)
    _votes("early_stopping_consistency", samples=5, rounds=7, rule="unanimous")
    deepconf: Values = {"coherence": "group_confidence", "final": "weighted_vote", "keep": 0.1}
    _votes("deepconf", samples=20, rounds=0, rule="none", **deepconf)
    _votes("self_certainty", samples=20, rounds=0, rule="none", coherence="self_certainty", final="borda")


def _votes(
    name: str,
    samples: int,
    rounds: int,
    rule: str,
    confidence: float = 0.85,
    coherence: str = "mean_prob",
    final: str = "vote",
    keep: float = 1.0,
) -> None:
    """Register a self-consistency of samples alone: when it ends, and how the samples vote.

    Adaptive-Consistency (arXiv 2305.11860), Early-Stopping Self-Consistency (arXiv 2401.10480), DeepConf
    (arXiv 2508.15260; windows of 16 tokens, the paper's have 2048), self-certainty (arXiv 2502.18581). The
    last two read the 20 likeliest tokens.
    """
    choice(
        "method",
        name,
        VerifiedSampling,
        name=name,
        samples=samples,
        stopping=part(Stopping, rounds=rounds, rule=rule, confidence=confidence),
        decoding=part(Sampling, temperature=0.8, top_k=50),
        verifier=part(NoVerifier),
        reward=part(Reward, coherence=coherence),
        final=part(FinalAnswer, rule=final, keep=keep),
    )


def _run() -> None:
    loaded = (
        "path",
        "revision",
        "dtype",
        "device_map",
        "attn_implementation",
        "quantization",
        "trust_remote_code",
    )
    model: Values = {name: f"${{model.{name}}}" for name in loaded}
    bounds: Values = dict.fromkeys(("device", "max_batch_tokens", "max_batch_rows", "threads"))
    hf = "soft_reasoning.engine.huggingface.HuggingFaceEngine"
    choice("engine", "hf", hf, **model, adapter="${model.adapter}", **bounds)
    sizes: Values = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "gpu_memory_utilization": 0.9,
    }
    vllm = "soft_reasoning.engine.vllm.VLLMEngine"
    choice("engine", "vllm", vllm, top={"max_live": 256}, **model, **sizes, max_model_len=None)
    choice("engine", "fake", "soft_reasoning.engine.fake.FakeEngine")

    choice("grader", "default", Grader)
    choice("grader", "lm_eval_flexible", LmEvalGrader, filter="flexible-extract")
    choice("grader", "lm_eval_strict", LmEvalGrader, filter="strict-match")
    choice("grader", "math_verify", MathVerifyGrader)
    choice("grader", "released", ReleasedGrader)

    runs = "soft_reasoning.lab.runs."
    choice("launcher", "local", f"{runs}runner.LocalLauncher")
    choice("launcher", "ray", f"{runs}ray.RayLauncher", address="local", workers=None, cpus=1, gpus=None)
    ConfigStore.instance().store("none", DictConfig({"logging": None}), "logging", package="_global_")
    choice("logging", "tensorboard", f"{runs}tracking.Tracker", name="tensorboard")
    account: Values = {"project": "soft_reasoning", "entity": None, "mode": None, "tags": []}
    choice("logging", "wandb", f"{runs}tracking.Tracker", name="wandb", **account)
    choice(
        "logging", "mlflow", f"{runs}tracking.Tracker", name="mlflow", uri=None, experiment="soft_reasoning"
    )


def conf_dir() -> str:
    """Return conf/ inside an installed wheel, or next to the package in a clone or editable install."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return str(folder)
    raise UserError(
        f"expected the configuration in {package / 'conf'}, found none; install the package again"
    )


def known_keys() -> set[str]:
    """Return the keys allowed at the top of a configuration, with the groups of every --config-dir."""
    conf = Path(conf_dir())
    folders = [folder.name for folder in conf.iterdir() if folder.is_dir()]
    if GlobalHydra.instance().is_initialized():
        folders += GlobalHydra.instance().config_loader().list_groups("")
    ours = groups()
    keys = [key for group in ours for node in registered(group).values() for key in node]
    top = map(str, OmegaConf.load(conf / "config.yaml"))
    return {*folders, *ours, *keys, *top} - {"defaults", "hydra"}


def groups() -> list[str]:
    """Return the groups of the registered choices."""
    register()
    nodes = ConfigStore.instance().repo
    return [group for group, node in nodes.items() if isinstance(node, dict) and group != "hydra"]


def registered(group: str) -> dict[str, dict[str, Any]]:
    """Return the registered choices of ``group`` by name: what each adds to the top of the configuration."""
    register()
    nodes = cast(dict[str, Any], ConfigStore.instance().repo.get(group, {}))
    return {
        file.removesuffix(".yaml"): cast(dict[str, Any], OmegaConf.to_container(entry.node))
        for file, entry in nodes.items()
    }
