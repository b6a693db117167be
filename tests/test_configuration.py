"""Every choice composes, and what it describes can be built on the fake engine."""

import pickle
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from soft_reasoning.checks import OptionError
from soft_reasoning.configuration.build import (
    build_context,
    build_engine,
    build_method,
    built,
)
from soft_reasoning.configuration.choices import PARTS, conf_dir
from soft_reasoning.configuration.compose import (
    as_typed,
    choices,
    compared_methods,
    compose_config,
    quoted,
    read_words,
    run_name,
)
from soft_reasoning.configuration.errors import one_line
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.method.soft_reasoning import SoftReasoning
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.search import BayesianOptimiser, SearchState
from soft_reasoning.types import Problem, UserError

CONF = Path(conf_dir())
GROUPS = (
    *PARTS,
    "dataset",
    "decoding",
    "engine",
    "grader",
    "launcher",
    "logging",
    "model",
    "preset",
    "prompt",
)
CHOICES = sorted({f"{group}={name}" for group in GROUPS for name in choices(group)})
NEEDS = {
    **{f"method={name}": ["prompt=math"] for name in ("program", "program_consistency", "mixed_consistency")},
    "verifier=program": ["prompt=math"],  # demo has no such wording
    "prompt=file": [f"prompt.path={Path(__file__).with_name('own_prompt.yaml')}"],
    "model=custom": ["model.path=A/B"],
}

QUESTION = Problem("one", "Is 7 more than 3? Choose: 1 or 2.", "1")


@pytest.fixture(scope="module")
def engine():
    return build_engine(compose_config(["engine=fake"]))


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes_builds_and_solves(choice, engine):
    if file := {"method=soft_token": "point", "verifier=probe": "probe"}.get(choice):
        with pytest.raises(UserError, match=f"{file}: expected a value, got none; add {file}="):
            build_method(compose_config([choice]))
        return  # with a file it is tested in tests/task and tests/judge
    config = compose_config([choice, *NEEDS.get(choice, []), "max_new_tokens=20"])
    build_dataset(config)
    if config.logging is not None:
        pytest.importorskip(choice.removeprefix("logging="))
        assert built(config, "logging")
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


def same(one, other):
    """Whether two parts have equal classes and fields; kernels and functions are compared by class."""
    if hasattr(one, "func"):  # an acquisition function's class with its arguments
        return one.func is other.func and one.keywords == other.keywords
    if type(one) is not type(other):
        return False
    try:
        names = [field.name for field in fields(one)]
    except TypeError:
        return one == other or not isinstance(one, str | int | float | None)
    return all(same(getattr(one, name), getattr(other, name)) for name in names)


def test_python_s_default_method_is_the_command_line_s():
    assert same(build_method(compose_config(["model=A/B"])), SoftReasoning())


def test_python_s_default_optimiser_is_the_command_line_s():
    optimiser, ours = build_method(compose_config()).optimiser, BayesianOptimiser()
    U = torch.randn(2, 10, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state = SearchState(U, U[..., 0], 5, seed=0, round=1, keys="ab")
    theirs, mine = optimiser.propose(state), ours.propose(state)
    assert all(torch.equal(a.points, b.points) for a, b in zip(theirs, mine, strict=True))


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
    with pytest.raises(UserError, match="embedding: expected a method that reads it, got method=cot"):
        compose_config(["preset=paper", "method=cot"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "verifier._target_=soft_reasoning.nowhere.Judge",
            "verifier: expected a class or function and options that it takes, got "
            "soft_reasoning.nowhere.Judge (No module named 'soft_reasoning.nowhere')",
        ),
        ("+verifier.mood=calm", "verifier: expected a class or function and options"),
        ("rounds=${nowhere}", "configuration: Interpolation key 'nowhere' not found"),
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
    assert compose_config([f"label={quoted(value)}"]).label == value


@pytest.mark.parametrize("word", ["max_tokens=0", "max_seconds=-1", "grader.absolute=-1"])
def test_values_that_need_no_model_are_checked_before_it_is_loaded(word, tmp_path):
    key = word.partition("=")[0]
    with pytest.raises(UserError, match=f"^{key}: expected"):
        build_engine(compose_config([word, f"model={tmp_path / 'nowhere'}"]))


def test_labels_and_the_reference_leave_out_samples_that_an_equal_budget_chooses():
    config = compose_config(["+experiment=demo_rivals", "budget=equal"])
    assert config.reference == "self_consistency temperature=1.3" in compared_methods(config)
    assert compose_config(["+experiment=demo_rivals"]).reference == "self_consistency k=20 temperature=1.3"


def test_folder_names_leave_out_what_they_say_already_and_long_paths():
    assert run_name("demo", "cot", "limit=5,method=cot") == "demo-cot-limit_5"
    assert run_name("demo", "soft_reasoning", "preset=paper") == "demo-soft_reasoning-preset_paper"
    typed = "dataset=custom,dataset.path={},model=custom,model.path=A/Qwen3-1.7B".format
    named = run_name("custom", "cot", typed("'/a/b/mine.csv'"))
    assert re.fullmatch(r"mine-cot-model_Qwen3-1.7B-\w{8}", named)
    other = run_name("custom", "cot", typed("/c/mine.csv"))
    assert named != other and named[:-8] == other[:-8]
    words = "dataset.path=q_num.jsonl,dataset=custom,method=mixed_consistency"  # as Hydra sorts them
    assert run_name("custom", "mixed_consistency", words) == "q_num-mixed_consistency"
    assert run_name("gsm8k", "cot", "dataset.path=/a/b.jsonl,dataset=gsm8k").startswith(
        "gsm8k-cot-dataset.path_"
    )


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("model=./a,B/C", ["model=custom", "model.path=./a,B/C"]),
        ("model='./a,b',B/C", ["model=custom", "model.path='./a,b',B/C"]),
        ("dataset=v.csv,w.csv", ["dataset=custom", "dataset.path=v.csv,w.csv"]),
        ("prompt=/a.yaml,/b.yml", ["prompt=file", "prompt.path='/a.yaml','/b.yml'"]),
        ('prompt="/a, b.yaml"', ["prompt=file", "prompt.path='/a, b.yaml'"]),
        ("model=demo,qwen3_1_7b", ["model=demo,qwen3_1_7b"]),
    ],
)
def test_several_files_are_read_one_by_one(word, read):
    assert read_words([word]) == read


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("model=demo,./folder", "demo,./folder"),
        ("dataset=demo,w.csv", "demo,w.csv"),
        ("prompt=math,a.yaml", "math,a.yaml"),
    ],
)
def test_names_and_paths_cannot_be_swept_together(word, values):
    """A path needs the choice for paths, in which a name would lose what it chooses."""
    group = word.partition("=")[0]
    with pytest.raises(UserError, match=f"^{group}: expected names or paths, got both in {values}; run two"):
        read_words([word])


@pytest.mark.parametrize(
    "words",
    [
        ["model='/models/a,b'"],
        ["dataset=own.csv", "model=/models/a", "k=3"],
        ["model=file.gguf", "label=a b", "methods=[cot,[self_consistency,'k=3']]"],
        ["+experiment=llama_zero", "model.path=/models/a", "dataset.path=gsm8k.jsonl"],
        ["dataset=~/own.csv", "model=A/NAME", "label='it is, so'"],
    ],
)
def test_options_are_shown_as_they_were_typed(words):
    assert as_typed(read_words(words)) == words


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("k=3 rounds=1", {"method.k": 3, "method.stopping.rounds": 1}),
        ("method=self_consistency k=3 temperature=1.1", {"method.samples": 3, "method.temperature": 1.1}),
        ("temperature=0.7", {"method.decoding.temperature": 0.7, "method.decoding.top_k": 50}),
        ("temperature=0", {"method.decoding.temperature": 0}),
        ("preset=paper temperature=0.7", {"method.decoding.temperature": 0.7}),
        ("d=5 delta=0.2", {"method.embedding.dim": 5, "method.optimiser.acquisition.delta": 0.2}),
        (
            "preset=paper lambda=0.7 epsilon=0.05",
            {"method.optimiser.surrogate.noise": 0.7, "method.stopping.threshold": 0.05},
        ),
        ("embedding=gaussian", {"d": 50, "method.embedding.dim": 50, "method.embedding.sigma": 8.0}),
        ("placement=first", {"method.placement": "first"}),
        ("method=deepconf k=3", {"method.samples": 3}),
        ("method=deepconf", {"method.samples": 20, "rounds": 0}),
        ("method=program_consistency prompt=math k=2", {"method.samples": 2}),
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
        "method=cot d=3",
        "method=cot acquisition=ucb",
        "method=cot verifier.samples=2",
        "method=random_embedding acquisition=ucb",
        "method=random_embedding delta=0.2",
        "method=verified_sampling embedding=gaussian",
        "method=deepconf verifier=oracle",
        "acquisition=ei delta=0.2",
        "stopping=settled epsilon=0.05",
    ],
)
def test_an_option_that_the_method_does_not_read_is_refused(words):
    key = words.split()[1].partition("=")[0]
    with pytest.raises(UserError, match=f"^{re.escape(key)}: expected .*that read"):
        compose_config(words.split())


def test_parts_that_the_method_does_not_read_are_left_out():
    for method, read in {
        "cot": set(),
        "random_embedding": {"embedding", "search", "verifier", "k", "d"},
    }.items():
        config = compose_config([f"method={method}"])
        assert read <= {*config} and not {"acquisition", "surrogate", "delta"} & {*config}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("search.dim=5", "got dim; did you mean embedding.dim?"),
        ("embedding.place=last", "got place; did you mean placement?"),
        ("acquisition.beta=2", "got beta; acquisition=ucb has it"),
        (
            "verifier=program verifier.shots=1",
            "got shots; verifier=multi_generate, verifier=single_generate, verifier=multi_judge, ",
        ),
        ("stopping.rul=none", "got rul; did you mean rule?"),
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
        "delta=7": "delta",
        "rounds=-1": "rounds",
        "stopping.threshold=-1": "stopping.threshold",
        "surrogate.lengthscale=0": "surrogate.lengthscale",
    }.items():
        with pytest.raises(OptionError) as refused:
            build_method(compose_config([word]))
        assert refused.value.name == key and str(refused.value) == f"{key}: {refused.value.message}"
        assert pickle.loads(pickle.dumps(refused.value)).name == key


@pytest.mark.parametrize(
    ("words", "verifier", "rule", "limit"),
    [
        ("model=A/B", "program", "weighted_vote", 512),
        (
            "model=A/B dataset=gsm8k method=random_embedding k=3 preset=default",
            "program",
            "weighted_vote",
            512,
        ),
        ("model.path=A/B", "program", "weighted_vote", 512),
        ("dataset=gsm8k", "single_judge", "reward_vote", 300),  # the bundled model writes no programs
        (
            "model=A/B dataset=strategyqa",
            "single_judge",
            "weighted_vote",
            512,
        ),  # yes or no
        ("model=A/B prompt=any method=soft_reasoning", "single_judge", "weighted_vote", 512),
        ("model=A/B verifier=single_generate", "single_generate", "weighted_vote", 512),
        ("model=A/B preset=paper", "multi_generate", "best_reward", 300),
        ("model=A/B +experiment=llama_zero", "multi_generate", "best_reward", 300),
        ("model=A/B max_new_tokens=90 final=best_reward", "program", "best_reward", 90),
        ("dataset=demo", "single_judge", "reward_vote", 300),
    ],
)
def test_defaults_are_for_real_models_and_the_bundled_one_has_its_own(words, verifier, rule, limit):
    config = compose_config(words.split())
    assert (config.verifier.name, config.final.rule, config.max_new_tokens) == (verifier, rule, limit)


def test_open_questions_are_answered_by_one_greedy_solution():
    assert compose_config(["prompt=any"]).method.name == "cot"
    assert compose_config(["prompt=any", "method=soft_reasoning"]).verifier.name == "single_judge"


def test_an_own_verifier_needs_no_other_option():
    config = compose_config(["verifier._target_=soft_reasoning.judge.verifier.Oracle"])
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
