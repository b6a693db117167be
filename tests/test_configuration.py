"""Every YAML under conf/ composes, and what it describes can be built on the fake engine."""

import pickle
import re
from inspect import Parameter, signature
from pathlib import Path

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from hydra.utils import get_object
from omegaconf import OmegaConf

from soft_reasoning.checks import OptionError
from soft_reasoning.configuration.build import build_context, build_dataset, build_engine, build_method
from soft_reasoning.configuration.compose import compared_methods, compose_config
from soft_reasoning.configuration.conf_dir import conf_dir, run_name
from soft_reasoning.configuration.errors import one_line
from soft_reasoning.configuration.implied import complete, full_names
from soft_reasoning.configuration.overrides import Override
from soft_reasoning.configuration.parts import built
from soft_reasoning.prompts import Prompts
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.search import BayesianOptimiser, SearchState
from soft_reasoning.types import Problem, UserError

CONF = Path(conf_dir())
CHOICES = sorted(
    f"{path.parent.relative_to(CONF)}={path.stem}"
    for path in CONF.rglob("*.yaml")
    if path.parent != CONF and not path.stem.startswith("_")
)
# added with +, by a command of their own, or part of a data set or prompt
APART = {"experiment", "exemplars", "programs", "reviews", "server"}
NEEDS = {
    "search=none": ["method=verified_sampling"],
    **{f"method={name}": ["prompt=math"] for name in ("program", "program_consistency", "mixed_consistency")},
    "verifier=program": ["prompt=math"],  # demo has no such wording
    "prompt=file": [f"prompt.path={Path(__file__).with_name('own_prompt.yaml')}"],
}
WITHOUT_SEARCH = {"method"}

QUESTION = Problem("one", "Is 7 more than 3? Choose: 1 or 2.", "1")


@pytest.fixture(scope="module")
def engine():
    return build_engine(compose_config(["engine=fake"]))


@pytest.mark.parametrize("choice", [c for c in CHOICES if c.split("=")[0] not in APART])
def test_every_choice_composes_builds_and_solves(choice, engine):
    rounds = [] if choice.split("=")[0] in WITHOUT_SEARCH else ["search.rounds=1"]
    config = compose_config([choice, *NEEDS.get(choice, []), *rounds, "max_new_tokens=20"])
    build_dataset(config)
    assert config.logging._target_ is None or built(config, "logging")
    method, context = build_method(config), build_context(config, engine)
    [(_, result)] = drive([QUESTION], method, context)
    assert result.candidates


@pytest.mark.slow  # hundreds of compositions
@pytest.mark.parametrize("path", sorted((CONF / "experiment").rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_experiment_composes_and_builds(path):
    name = path.relative_to(CONF / "experiment").with_suffix("")
    config = compose_config([f"+experiment={name}"])
    build_dataset(config)
    build_method(config)
    commands = ("# python -m soft_reasoning.run", "# python -m experiments.")
    assert path.stem.startswith("_") or path.read_text().splitlines()[1].startswith(commands)
    if path.stem.startswith(("paper_", "sweep_", "_")):  # the slow tests run what these compare and sweep
        return
    for overrides in compared_methods(config).values():
        build_method(compose_config([f"+experiment={name}", *overrides]))
    swept = OmegaConf.load(path).get("hydra", {}).get("sweeper", {}).get("params", {})
    for key, values in swept.items():
        override = OverridesParser.create().parse_override(f"{key}={values}")
        swept_values = list(override.sweep_string_iterator()) if override.is_sweep_override() else [values]
        for value in {swept_values[0], swept_values[-1]}:
            build_method(compose_config([f"+experiment={name}", f"{key}={value}"]))


DEFAULTS = {
    "embedding": "gaussian",
    "search": "bayesian",
    "surrogate": "rbf",
    "acquisition": "adaptive_ei",
    "candidate_points": "local",
    "batch": "kriging_believer",
    "verifier": "multi_generate",
    "reward": "default",
    "final": "reward_vote",
    "method": "cot_decoding",
    "grader": "default",
    "dataset": "custom",
    "decoding": "greedy",
    "engine": "hf",
    "launcher": "local",
    "logging": "none",
}
"""Of a class that several files configure, the file that holds its defaults."""


def configured(config):
    """Each mapping below ``config`` that names a class of ours, with the class."""
    if OmegaConf.is_dict(config):
        target = config.get("_target_")
        if isinstance(target, str) and target.startswith("soft_reasoning."):
            yield get_object(target), config
        for key in config:
            yield from configured(config[key])


@pytest.mark.slow
def test_the_defaults_of_a_class_are_those_of_its_file():
    """What Python builds without arguments is what the command line builds without overrides."""
    files: dict[type, dict[str, object]] = {}
    for choice in CHOICES:
        group, _, name = choice.partition("=")
        if group in DEFAULTS:
            needs = NEEDS.get(choice, []) if group == "search" else []
            for made, values in configured(compose_config([choice, "model.sigma=2", *needs])[group]):
                files.setdefault(made, {})[name] = values
    checked = 0
    for made, by_name in files.items():
        values = by_name[next(iter(by_name))] if len(by_name) == 1 else None
        for name in (*DEFAULTS.values(), "self_consistency", "program_consistency"):
            values = by_name.get(name, values)
        for key, parameter in signature(made).parameters.items():
            value = (values or {}).get(key, {})  # parts are mappings, with defaults of their own
            if not OmegaConf.is_config(value) and value != {} and parameter.default is not Parameter.empty:
                assert parameter.default == value, f"{made.__name__}: {key}"
                checked += 1
    assert checked > 130
    prompt, taken = compose_config(["prompt=math"]).prompt, signature(Prompts).parameters
    assert all(prompt[key] == (taken[key].default or {}) for key in ("layout", "date", "chat_options"))


def test_python_s_default_optimiser_is_the_command_line_s():
    optimiser, ours = build_method(compose_config()).optimiser, BayesianOptimiser()
    U = torch.randn(2, 10, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state = SearchState(U, U[..., 0], 5, seed=0, round=1, keys="ab")
    theirs, mine = optimiser.propose(state), ours.propose(state)
    assert all(torch.equal(a.points, b.points) for a, b in zip(theirs, mine, strict=True))


def test_the_paper_s_preset_has_the_paper_s_parts():
    for name in ("paper", "paper_literal"):
        config = compose_config([f"preset={name}"])
        assert (
            config.embedding._target_.endswith("GaussianEmbedding") and "temperature" not in config.decoding
        )
        assert (config.verifier.name, config.verifier.confidence) == ("multi_generate", "none")
        assert (config.final.rule, config.search.stopping.rule) == ("best_reward", "difference")


def test_an_experiment_s_preset_is_for_the_methods_that_have_presets():
    for method in ("cot", "self_consistency"):
        assert compose_config(["+experiment=paper_setting", f"method={method}"]).method.name == method
    control = compose_config(["+experiment=paper_setting", "method=random_embedding"])
    assert control.search.stopping.rule == "difference" and control.final.rule == "best_reward"
    assert compose_config(["+experiment=paper_setting", "preset=default"]).final.rule == "reward_vote"
    with pytest.raises(UserError, match="expected a group that the chosen method uses"):
        compose_config(["preset=paper", "method=cot"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("verifier._target_=soft_reasoning.nowhere.Judge", "method.verifier: expected a class or"),
        ("+verifier.mood=calm", "method.verifier: expected a class or function and its arguments"),
        ("search.rounds=${nowhere}", "search.stopping.rounds: Interpolation key 'nowhere' not found"),
    ],
)
def test_what_cannot_be_built_is_named_by_its_key(override, message):
    with pytest.raises(UserError) as error:
        build_method(compose_config([override]))
    assert str(error.value).startswith(message)


def test_another_model_does_not_get_the_bundled_one_s_sigma():
    for path, sigma in (("demo", 8), ("someone/model", 2), ("smollm2_135m", 1)):
        assert compose_config([f"model.path={path}", "embedding=gaussian"]).embedding.sigma == sigma


@pytest.mark.parametrize("value", ["it's", 'a "b" \\', "x=[1],{2}", "null", "5", None, True, 0.5])
def test_an_override_holds_any_value(value):
    assert compose_config([Override.of("label", value)]).label == value


def test_folder_names_leave_out_what_they_say_already_and_long_paths():
    assert run_name("demo", "cot", "limit=5,method=cot,preset=default") == "demo-cot-limit_5"
    assert run_name("demo", "soft_reasoning", "preset=default") == "demo-soft_reasoning-preset_default"
    named = run_name("custom", "cot", "dataset.path='/a/b/mine.csv',model=_base,model.path='A/Qwen3-1.7B'")
    assert re.fullmatch(r"custom-cot-dataset.path_mine.csv-model.path_Qwen3-1.7B-\w{8}", named)
    other = run_name("custom", "cot", "dataset.path='/c/mine.csv',model=_base,model.path='A/Qwen3-1.7B'")
    assert named != other and named[:-8] == other[:-8]


@pytest.mark.parametrize(
    ("words", "full"),
    [
        (["k=3", "rounds=1"], ["search.candidates=3", "search.rounds=1"]),
        (["method=self_consistency", "k=3,5"], ["method=self_consistency", "method.samples=3,5"]),
        (["temperature=0.7"], ["decoding=sampled", "decoding.temperature=0.7"]),
        (["temperature=0", "limit=5"], ["limit=5", "decoding=greedy"]),
        (
            ["method=self_consistency", "temperature=1.1"],
            ["method=self_consistency", "method.temperature=1.1"],
        ),
        (["limit=5"], ["limit=5"]),
        (["d=5", "delta=0.2"], ["embedding.dim=5", "acquisition.delta=0.2"]),
        (["placement=first,last"], ["method.placement=first,last"]),
        (["embedding=gaussian", "sigma=3"], ["embedding=gaussian", "embedding.sigma=3"]),
        (
            ["embedding=gaussian,token_simplex", "d=5"],
            ["embedding=gaussian,token_simplex", "embedding.dim=5"],
        ),
    ],
)
def test_short_options_become_those_of_the_method(words, full):
    assert [*map(str, full_names(words))] == full


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method=cot", "k=3"], "k: expected a method that has it, got method=cot"),
        (["methods=[cot,soft_reasoning]", "rounds=1"], '"soft_reasoning rounds=1", got it for a whole'),
        (["method=soft_reasoning,self_consistency", "k=3"], "k: expected methods with the same key for it"),
        (["shots=2"], "shots: expected a full key, got the last part of verifier.shots, dataset.shots; name"),
        (["sigma=2"], "did you mean embedding.sigma or model.sigma?"),
        (["method=cot", "delta=0.2"], "got delta; did you mean acquisition.delta?"),
        (["limti=2"], "limti: expected a key or group of the configuration, got limti; did you mean limit?"),
    ],
)
def test_short_options_that_cannot_be_are_one_line(words, message):
    with pytest.raises(UserError, match=re.escape(message)):
        full_names(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("search.dim=5", "got dim; did you mean embedding.dim?"),
        ("acquisition.beta=2", "got beta; acquisition=ucb has it"),
        (
            "verifier=program verifier.shots=1",
            "got shots; verifier=fresh, verifier=multi_generate, verifier=multi_judge, ",
        ),
        ("search.stopping.rul=none", "got rul; did you mean rule?"),
        ("acquisition=adaptiv_ei", "got adaptiv_ei; did you mean adaptive_ei?"),
        ("embedding", "embedding: expected key=value, got something else"),
    ],
)
def test_the_right_key_or_choice_is_named(words, message):
    with pytest.raises(UserError, match=re.escape(message)):
        compose_config(words.split())


def test_an_error_carries_the_option_s_full_key():
    """However deep the part is that refuses the value, and wherever its configuration refers to."""
    for word, key in {
        "acquisition.delta=7": "acquisition.delta",
        "search.rounds=-1": "search.rounds",
        "search.stopping.threshold=-1": "search.stopping.threshold",
        "surrogate.lengthscale=0": "surrogate.lengthscale",
    }.items():
        with pytest.raises(OptionError) as refused:
            build_method(compose_config([word]))
        assert refused.value.name == key and str(refused.value) == f"{key}: {refused.value.message}"
        assert pickle.loads(pickle.dumps(refused.value)).name == key


def test_what_follows_from_options_follows_once():
    for words in (["method=cot"], ["model=A/B", "max_new_tokens=9", "prompt=any"], ["model=A/B"]):
        assert complete(complete(words)) == complete(words)


@pytest.mark.parametrize(
    ("words", "verifier"),
    [
        ("model=A/B", "program"),
        ("model=A/B dataset=gsm8k method=random_embedding k=3 preset=default", "program"),
        ("model=A/B dataset=gsm8k verifier.shots=1", "single_judge"),  # an option of verdicts
        ("model.path=A/B", "program"),
        ("dataset=gsm8k", "single_judge"),  # the bundled model writes no programs
        ("model=A/B dataset=strategyqa", "single_judge"),  # no program computes yes or no
        ("model=A/B prompt=any k=2", "single_judge"),
        ("model=A/B engine=fake", "single_judge"),
        ("model=A/B verifier=single_generate", "single_generate"),
        ("model=A/B preset=paper", "multi_generate"),
        ("model=A/B +experiment=llama_zero", "multi_generate"),
    ],
)
def test_programs_judge_the_numbers_of_a_model_that_is_not_bundled(words, verifier):
    assert compose_config(words.split()).verifier.name == verifier


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("model=A/B", "weighted_vote"),
        ("model=A/B dataset=strategyqa method=verified_sampling", "weighted_vote"),
        ("model=A/B final.verifier_weight=2", "weighted_vote"),
        ("model=A/B final=best_reward", "best_reward"),
        ("model=A/B verifier=oracle", "reward_vote"),  # a perfect judge is not to be outvoted
        ("model=A/B verifier._target_=soft_reasoning.rewards.verifiers.Oracle", "reward_vote"),
        ("model=A/B preset=paper", "best_reward"),
        ("model=A/B +experiment=llama_zero", "best_reward"),
        ("model=A/B engine=fake", "reward_vote"),
        ("dataset=demo", "reward_vote"),  # the bundled model was trained to judge
    ],
)
def test_rewards_are_added_up_where_a_model_judges_itself(words, rule):
    assert compose_config(words.split()).final.rule == rule


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("model=A/B", 512),
        ("model=A/B method=cot dataset=gsm8k", 512),
        ("model=A/B methods=[cot,program]", 512),
        ("model=A/B max_new_tokens=90", 90),
        ("model=A/B preset=paper", 300),
        ("model=A/B +experiment=llama_zero", 300),
        ("dataset=demo", 300),
    ],
)
def test_models_that_are_not_bundled_have_room_for_a_solution(words, limit):
    assert compose_config(words.split()).max_new_tokens == limit


@pytest.mark.parametrize(
    ("verifiers", "rules"), [("probability,program", ["weighted_vote"]), ("program,oracle", [])]
)
def test_a_sweep_of_verifiers_has_one_default_rule(verifiers, rules):
    overrides = complete(["model=A/B", f"verifier={verifiers}"])
    assert [override.value for override in overrides if override.key == "final"] == rules


def test_a_sweep_has_one_default_verifier(caplog):
    def verifiers(*words):
        return [override.value for override in complete(words) if override.key == "verifier"]

    assert verifiers("model=A/B,A/C", "dataset=gsm8k,svamp", "k=3,5") == ["program"]
    assert verifiers("model=A/B", "method=soft_reasoning,verified_sampling") == ["program"]
    assert not caplog.messages
    compared = ["model=A/B", "methods=[cot,soft_reasoning]"]  # decided for each method
    assert verifiers(*compared) == verifiers(*compared, "method=cot") == []
    assert verifiers(*compared, "method=soft_reasoning") == ["program"] and not caplog.messages
    assert verifiers("model=A/B", "dataset=gsm8k,strategyqa") == []
    assert verifiers("model=A/B", "method=cot,soft_reasoning") == []  # cot has no verifier
    assert [line.split(":")[0] for line in caplog.messages] == [
        "verifier=single_judge in the whole sweep"
    ] * 2
    assert verifiers("model=A/B", "method=cot,self_consistency") == []
    assert verifiers("model=A/B", "dataset=strategyqa") == []
    assert len(caplog.messages) == 2


def test_an_own_verifier_needs_no_other_option():
    config = compose_config(["verifier._target_=soft_reasoning.rewards.verifiers.Oracle"])
    assert type(build_method(config).verifier).__name__ == "Oracle"


def test_a_file_is_a_data_set(tmp_path):
    file = tmp_path / "my rows.csv"
    file.write_text("question,answer\n1 + 2?,3\n")
    [problem] = build_dataset(compose_config([f"dataset={file}"])).problems()
    assert (problem.question, problem.gold) == ("1 + 2?", "3")


def test_an_error_of_hydra_without_a_text_is_explained_by_its_cause():
    error = ConfigCompositionException()
    error.__cause__ = ValueError("token recognition error at: '~'\n    full_key: path")
    assert one_line(error) == "token recognition error at: '~' full_key: path"
