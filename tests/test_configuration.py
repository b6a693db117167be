"""Every YAML under conf/ composes, and what it describes can be built on the fake engine."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from soft_reasoning.build import build_context, build_dataset, build_engine, build_method
from soft_reasoning.config import compose_config, conf_dir, methods_of, override, run_name
from soft_reasoning.scheduler import drive
from soft_reasoning.types import Problem, UserError

CONF = Path(conf_dir())
CHOICES = sorted(
    f"{path.parent.relative_to(CONF)}={path.stem}" for path in CONF.rglob("*.yaml") if path.parent != CONF
)
APART = {"experiment", "exemplars", "reviews"}  # added with +, or part of a data set or prompt
NEEDS = {
    "embedding=orthonormal": ["embedding.dim=10"],  # the fake engine is 32 wide
    "finetuning=constrained": ["method=constrained_finetuning"],
}
WITHOUT_SEARCH = {"method", "finetuning"}

QUESTION = Problem("one", "Is 7 more than 3? Choose: 1 or 2.", "1")


@pytest.fixture(scope="module")
def engine():
    return build_engine(compose_config(["engine=fake"]))


@pytest.mark.parametrize("choice", [c for c in CHOICES if c.split("=")[0] not in APART])
def test_every_choice_composes_builds_and_solves(choice, engine):
    rounds = [] if choice.split("=")[0] in WITHOUT_SEARCH else ["search.rounds=1"]
    config = compose_config([choice, *NEEDS.get(choice, []), *rounds, "max_new_tokens=20"])
    build_dataset(config)
    method, context = build_method(config), build_context(config, engine)
    [(_, result)] = drive([QUESTION], method, context)
    assert result.candidates


@pytest.mark.parametrize("path", sorted((CONF / "experiment").rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_experiment_composes_and_builds(path):
    name = path.relative_to(CONF / "experiment").with_suffix("")
    config = compose_config([f"+experiment={name}"])
    build_dataset(config)
    build_method(config)
    for budget in ("own", "equal") if config.methods else ():
        for method, changes in methods_of(
            compose_config([f"+experiment={name}", f"budget={budget}"])
        ).values():
            build_method(compose_config([f"+experiment={name}", f"method={method}", *changes]))
    swept = OmegaConf.load(path).get("hydra", {}).get("sweeper", {}).get("params", {})
    for key, values in swept.items():
        one = OverridesParser.create().parse_override(f"{key}={values}")
        swept_values = list(one.sweep_string_iterator()) if one.is_sweep_override() else [values]
        for value in dict.fromkeys([*swept_values[:8], swept_values[-1]]):
            build_method(compose_config([f"+experiment={name}", f"{key}={value}"]))
    commands = ("# python -m soft_reasoning.run", "# python experiments/")
    assert path.read_text().splitlines()[1].startswith(commands)


def test_a_group_that_the_method_does_not_use_is_an_error():
    with pytest.raises(UserError, match="acquisition"):
        compose_config(["method=cot", "acquisition=ucb"])


def test_every_part_of_the_search_is_one_value():
    method = build_method(
        compose_config(
            ["surrogate.noise=0.125", "acquisition=pi", "generation=uniform", "generation.count=7",
             "batch=top_k", "search.contrast=0", "search.incumbent=observed", "search.rounds=3"]
        )
    )  # fmt: skip
    optimiser = method.optimiser
    names = [type(part).__name__ for part in (optimiser.acquisition, optimiser.generation, optimiser.batch)]
    assert names == ["PI", "UniformCandidates", "TopK"]
    assert optimiser.surrogate.noise == 0.125 and optimiser.generation.count == 7
    assert optimiser.contrast == 0 and optimiser.incumbent == "observed"
    assert method.stopping.rounds == 3


def test_errors_list_what_exists_on_one_line():
    with pytest.raises(UserError) as error:
        compose_config(["dataset=trivia"])
    assert "gsm8k" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "value", ["my model (1)", "it's", 'a "b" \\', "x=[1],{2}", "", "null", "5", None, True, 5, 0.5]
)
def test_an_override_holds_any_value(value):
    assert compose_config([override("label", value)]).label == value


def test_methods_have_labels_of_their_own():
    methods = "methods=[cot,[self_consistency,'method.samples=3'],[self_consistency,'method.samples=5']]"
    assert list(methods_of(compose_config([methods]))) == [
        "cot", "self_consistency method.samples=3", "self_consistency method.samples=5"
    ]  # fmt: skip
    with pytest.raises(UserError, match="got cot twice"):
        compose_config(["methods=[cot,cot]"])
    assert methods_of(compose_config()) == {}


def test_methods_that_differ_in_samples_alone_are_one_under_an_equal_budget():
    methods = "methods=[cot,[self_consistency,'method.samples=3'],[self_consistency,'method.samples=5']]"
    assert methods_of(compose_config([methods, "budget=equal"])) == {
        "cot": ("cot", []), "self_consistency": ("self_consistency", ["method.samples=3"])
    }  # fmt: skip
    with pytest.raises(UserError, match="got cot twice"):
        compose_config(["methods=[cot,cot]", "budget=equal"])


def test_a_key_that_nothing_knows_is_refused_and_one_that_a_file_brings_is_not():
    for wrong in ("+acquisiton=ei", "acquisiton=ei", "++acquisiton.delta=1"):
        with pytest.raises(UserError, match=r"got acquisiton; did you mean acquisition\?"):
            compose_config([wrong])
    assert "ray" in compose_config(["launcher=ray"])


def test_run_names_are_stable_short_and_distinct():
    assert run_name("demo", "cot", "limit=5") == "demo-cot-limit=5"
    assert run_name("demo", "", "") == "demo"
    long = [run_name("demo", "x" * 300 + end) for end in "ab"]
    assert long[0] != long[1] and max(map(len, long)) < 120
    assert "/" not in run_name("demo", "path=../a/b")
