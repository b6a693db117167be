"""Every choice composes, and what it describes can be built on the fake engine."""

import pickle
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from soft_reasoning.checks import OptionError
from soft_reasoning.cli.compose import checked_method, compose_config, methods_of, plain
from soft_reasoning.configuration import registry
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.configuration.data import conf_dir, models, prompt_names, read_model, read_prompt
from soft_reasoning.configuration.parts import Setting, imported, make
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.runs.naming import run_name
from soft_reasoning.method.soft_reasoning import SoftReasoning
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Problem, UserError

CONF = conf_dir()
OWN = Path(__file__).with_name("own_prompt.yaml")
GROUPS = {**registry.GROUPS, "preset": registry.PRESETS, "model": models(), "prompt": prompt_names()}
CHOICES = sorted(
    {f"{group}={name}" for group, known in GROUPS.items() for name in known}
    | {f"dataset={file.stem}" for file in (CONF / "dataset").glob("[!_]*.yaml")}
)
NEEDS = {
    **{f"method={name}": ["prompt=math"] for name in ("program", "program_consistency", "mixed_consistency")},
    "verifier=program": ["prompt=math"],  # demo has no such wording
    "model=custom": ["model.path=A/B"],
}

QUESTION = Problem("one", "Is 7 more than 3? Choose: 1 or 2.", "1")


@pytest.fixture(scope="module")
def engine():
    return build_engine(compose_config(["engine=fake"]))


@pytest.mark.parametrize("name", GROUPS["engine"])
def test_the_name_of_every_engine_is_that_of_a_callable(name):
    """A module of the same name would hide a function."""
    assert imported(compose_config([f"engine={name}"]).engine._target_, "engine")


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes_builds_and_solves(choice, engine):
    if file := {"method=soft_token": "point", "verifier=probe": "probe"}.get(choice):
        with pytest.raises(UserError, match=f"^{file}: expected a value, got none; add {file}=VALUE"):
            checked_method(compose_config([choice]))
        return  # with a file it is tested in tests/task and tests/judge
    config = compose_config([choice, *NEEDS.get(choice, []), "max_new_tokens=20"])
    build_dataset(plain(config))
    method, context = build_method(config), build_context(config, engine)
    [(_, result)] = drive([QUESTION], method, context)
    assert result.candidates


@pytest.mark.slow  # hundreds of compositions
@pytest.mark.parametrize("path", sorted((CONF / "experiment").rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_experiment_composes_and_builds(path):
    name = path.relative_to(CONF / "experiment").with_suffix("")
    config = compose_config([f"+experiment={name}"])
    build_dataset(plain(config))
    build_method(config)
    if path.stem.startswith(("paper_", "sweep_", "_")):  # the slow tests run what these compare and sweep
        return
    for overrides in methods_of(config).values():
        build_method(compose_config([f"+experiment={name}", *overrides]))


def same(one, other):
    """Whether two parts have equal classes and fields; kernels and functions are compared by class."""
    if hasattr(one, "func"):  # an acquisition function's class with its arguments
        return one.func is other.func and one.keywords == other.keywords
    if type(one) is not type(other):
        return other is None and type(one).__name__ in ("RBFKernel", "ZeroMean")  # the surrogate's defaults
    try:
        names = [field.name for field in fields(one)]
    except TypeError:
        return one == other or not isinstance(one, str | int | float | None)
    return all(same(getattr(one, name), getattr(other, name)) for name in names)


def test_python_s_default_method_is_the_command_line_s():
    assert same(build_method(compose_config(["model=A/B"])), SoftReasoning())


NAMED = [(group, name) for group in registry.PARTS for name in registry.PARTS[group]]


@pytest.mark.parametrize(
    ("model", "prompt"), [("demo", "demo"), pytest.param("A/B", "boolean", marks=pytest.mark.slow)]
)
def test_a_choice_is_the_same_object_from_both_sides(model, prompt):
    known, asked = read_model(model), read_prompt(prompt)
    chooses, tokens = {**asked.chooses, **known.chooses}, known.values.get("max_new_tokens", 512)
    setting = Setting(model=known.values, choices=chooses, max_new_tokens=tokens)
    for group, name in NAMED:
        if (group, name) in (("method", "soft_token"), ("verifier", "probe")):
            continue  # they need a file
        words = [f"model={model}", f"prompt={prompt}", f"{group}={name}"]
        words += [] if group == "method" else ["method=soft_reasoning"]
        theirs = compose_config(words)
        key = "method" if group in ("method", "grader") else group
        assert same(make(plain(theirs)[key], key), setting.build(group, name)), name
    for name in registry.PRESETS:
        theirs = build_method(compose_config([f"model={model}", f"prompt={prompt}", f"preset={name}"]))
        if model == "demo":  # its own judge and final rule go before a preset's
            theirs = build_method(compose_config(["model=demo", f"preset={name}"]))
        assert same(theirs, setting.preset(name)), name


def test_the_paper_s_preset_has_the_paper_s_parts():
    for name in ("paper", "paper_literal"):
        config = compose_config([f"preset={name}"])
        assert config.embedding._target_.endswith("GaussianEmbedding") and config.decoding.temperature == 0
        assert (config.verifier.name, config.verifier.confidence) == ("multi_generate", "none")
        assert (config.final.rule, config.stopping.rule) == ("best_reward", "difference")


def test_a_preset_of_an_experiment_acts_on_the_methods_that_have_its_parts():
    for method in ("cot", "self_consistency"):
        config = compose_config(["+experiment=paper_setting", f"method={method}"])
        assert config.method.name == method and "embedding" not in config
    control = compose_config(["+experiment=paper_setting", "method=random_embedding"])
    assert control.stopping.rule == "difference" and control.final.rule == "best_reward"
    default = compose_config(["+experiment=paper_setting", "preset=default"])
    assert (default.final.rule, default.verifier.name) == ("weighted_vote", "program")
    with pytest.raises(UserError, match="preset: expected a method that reads it, got method=cot"):
        compose_config(["preset=paper", "method=cot"])


def test_another_model_does_not_get_the_bundled_one_s_sigma():
    for name, sigma in (("demo", 8), ("someone/model", 2), ("smollm2_135m", 1)):
        assert compose_config([f"model={name}", "embedding=gaussian"]).embedding.sigma == sigma


@pytest.mark.parametrize("word", ["max_tokens=0", "max_seconds=-1", "grader.absolute=-1"])
def test_values_that_need_no_model_are_checked_before_it_is_loaded(word):
    with pytest.raises(UserError, match=f"^{word.partition('=')[0]}: expected"):
        checked_method(compose_config([word, "model=./nowhere"]))


def test_labels_and_the_reference_leave_out_samples_that_an_equal_budget_chooses():
    config = compose_config(["+experiment=demo_rivals", "budget=equal"])
    assert config.reference == "self_consistency temperature=1.3" in methods_of(config)
    assert compose_config(["+experiment=demo_rivals"]).reference == "self_consistency k=20 temperature=1.3"


def test_folder_names_leave_out_what_they_say_already_and_long_paths():
    assert run_name("demo", "cot", "limit=5,method=cot") == "demo-cot-limit_5"
    assert run_name("demo", "soft_reasoning", "preset=paper") == "demo-soft_reasoning-preset_paper"
    typed = "dataset={},model=A/Qwen3-1.7B".format
    named = run_name("custom", "cot", typed("/a/b/mine.csv"))
    assert re.fullmatch(r"mine-cot-model_Qwen3-1.7B-\w{8}", named)
    other = run_name("custom", "cot", typed("/c/mine.csv"))
    assert named != other and named[:-8] == other[:-8]
    words = "dataset=q_num.jsonl,method=mixed_consistency"  # as Hydra sorts them
    assert run_name("custom", "mixed_consistency", words) == "q_num-mixed_consistency"
    assert run_name("gsm8k", "cot", "dataset.path=/a/b.jsonl,dataset=gsm8k").startswith(
        "gsm8k-cot-dataset.path_"
    )


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("model=Qwen/Qwen2.5-1.5B-Instruct", "model.path", "Qwen/Qwen2.5-1.5B-Instruct"),
        ("model=/models/it.gguf", "engine.path", "/models/it.gguf"),
        ("dataset='/data/my rows.csv'", "dataset.path", "/data/my rows.csv"),
        (f"prompt={OWN}", "prompt.path", str(OWN)),
    ],
)
def test_a_name_or_a_file_is_a_choice(word, key, value):
    assert OmegaConf.select(compose_config([word]), key) == value


def test_an_experiment_may_choose_a_name_and_a_file(tmp_path, run):
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    content = "# @package _global_\ndefaults:\n  - override /model: A/NAME\n  - override /dataset: v.csv\n"
    (tmp_path / "own" / "experiment" / "mine.yaml").write_text(content)
    shown = run("--config-dir", "own", "+experiment=mine", "--cfg", "all")
    config = yaml.safe_load(shown.stdout)
    assert (config["model"]["path"], config["dataset"]["path"]) == ("A/NAME", "v.csv")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("k=3 rounds=1", {"method.k": 3, "method.stopping.rounds": 1}),
        ("method=self_consistency k=3 temperature=1.1", {"method.samples": 3, "method.temperature": 1.1}),
        ("temperature=0.7", {"method.decoding.temperature": 0.7, "method.decoding.top_k": 50}),
        ("preset=paper temperature=0.7", {"method.decoding.temperature": 0.7}),
        ("d=5 delta=0.2", {"method.embedding.dim": 5, "method.optimiser.acquisition.delta": 0.2}),
        (
            "preset=paper lambda=0.7 epsilon=0.05",
            {"method.optimiser.surrogate.noise": 0.7, "method.stopping.threshold": 0.05},
        ),
        ("acquisition=ucb acquisition.beta=5", {"method.optimiser.acquisition.beta": 5}),
        ("verifier=oracle final=vote", {"method.final.rule": "vote"}),
        ("verifier=oracle model=A/B", {"method.final.rule": "reward_vote"}),
    ],
)
def test_short_options_reach_the_parts_that_read_them(words, values):
    config = compose_config(words.split())
    assert {key: OmegaConf.select(config, key) for key in values} == values


@pytest.mark.parametrize(
    "words",
    [
        "method=cot k=3",
        "method=cot acquisition=ucb",
        "method=cot verifier.samples=2",
        "acquisition=ei delta=0.2",
    ],
)
def test_an_option_that_the_method_does_not_read_is_refused(words):
    key = words.split()[1].partition("=")[0]
    with pytest.raises(UserError, match=f"^{re.escape(key)}: expected .*that read"):
        compose_config(words.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("dim=5", "got dim; did you mean embedding.dim?"),
        ("dataset.limt=3", "got limt; did you mean limit?"),
        ("acquisition=adaptiv_ei", "got adaptiv_ei; did you mean adaptive_ei?"),
    ],
)
def test_the_right_key_or_choice_is_named(words, message):
    with pytest.raises(UserError, match=re.escape(message)):
        checked_method(compose_config(words.split()))


def test_an_error_carries_the_option_s_full_key():
    """However deep the part is that refuses the value, and wherever its configuration refers to."""
    for word, key in {
        "lambda=-1": "lambda",
        "rounds=-1": "rounds",
        "stopping.threshold=-1": "stopping.threshold",
        "surrogate.lengthscale=0": "surrogate.lengthscale",
    }.items():
        with pytest.raises(OptionError) as refused:
            checked_method(compose_config([word]))
        assert refused.value.name == key and str(refused.value) == f"{key}: {refused.value.message}"
        assert pickle.loads(pickle.dumps(refused.value)).name == key


@pytest.mark.parametrize(
    ("words", "verifier", "rule", "limit"),
    [
        ("model=A/B", "program", "weighted_vote", 512),
        ("dataset=gsm8k", "single_judge", "reward_vote", 300),  # the bundled model writes no programs
        ("model=A/B dataset=strategyqa", "single_judge", "weighted_vote", 512),  # yes or no
        ("model=A/B prompt=any method=soft_reasoning", "single_judge", "weighted_vote", 512),
        ("model=A/B preset=paper", "multi_generate", "best_reward", 300),
        ("model=A/B max_new_tokens=90 final=best_reward", "program", "best_reward", 90),
    ],
)
def test_defaults_are_for_real_models_and_the_bundled_one_has_its_own(words, verifier, rule, limit):
    config = compose_config(words.split())
    assert (config.verifier.name, config.final.rule, config.max_new_tokens) == (verifier, rule, limit)


def test_open_questions_are_answered_by_one_greedy_solution():
    assert compose_config(["prompt=any"]).method.name == "cot"
    assert compose_config(["prompt=any", "method=soft_reasoning"]).verifier.name == "single_judge"


@pytest.mark.parametrize("value", ["日本", "~x", "x#y", "a`b", "é@2%"])
def test_any_letter_is_read_in_quotes(value):
    assert compose_config([f"label='{value}'"]).label == value


def test_a_class_of_one_s_own_takes_its_own_options():
    """Those of the choice that it replaces are not among them."""
    target = "acquisition._target_=botorch.acquisition.UpperConfidenceBound"
    config = compose_config([target, "acquisition.beta=0.25", "acquisition.maximize=false"])
    acquisition = checked_method(config).optimiser.acquisition
    assert acquisition.keywords == {"beta": 0.25, "maximize": False}
    for words in ([target, "acquisition.betta=1"], ["acquisition=ucb", "acquisition.betta=1"]):
        with pytest.raises(
            UserError, match="^acquisition.betta: expected an option of .* did you mean beta?"
        ):
            checked_method(compose_config(words))
