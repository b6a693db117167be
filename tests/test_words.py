"""A command's words: what Hydra's grammar lacks is read, and the message for others tells the cause."""

import pytest

from soft_reasoning.configuration.build import build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.types import UserError

FAKE = ("engine=fake", "limit=1", "progress=false", "max_new_tokens=4")
VALUES = [
    "ünï",
    "日本",
    "é è",
    "~x",
    "x#y",
    "a&b",
    "a!b",
    "a;b",
    "a^b",
    "a<b>",
    "a`b",
    "-é",
    "x\u00a0y",
    "é@2%",
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("word", ["label={}", "label='{}'", "+label={}"])
def test_any_letter_is_read(word, value):
    assert compose_config([word.format(value)]).label == value


def test_letters_in_lists_and_paths():
    config = compose_config(["methods=[[cot,label],é]", "dataset.path=données/é.csv"])
    assert config.dataset.path == "données/é.csv"
    assert config.methods == [["cot", "label"], "é"]


def test_a_sweep_over_letters(command, tmp_path):
    done = command("sweep", *FAKE, "label=é,b,日本", "hydra.sweep.dir=out")
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("é", "日本"))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("läbel=1", "läbel: expected a key or group of the configuration, got läbel; did you mean label?"),
        ("日本=1", "日本: expected a key or group of the configuration"),
        ("~seed", "~seed: expected key=value, got a deletion; give the key another value instead"),
        ("~seed=0", "~seed=0: expected key=value, got a deletion"),
        ("~method", "~method: expected key=value, got a deletion"),
        ("~method=cot", "~method=cot: expected key=value, got a deletion"),
        ("~nothing", "~nothing: expected key=value, got a deletion"),
        ("~", "~: expected key=value"),
        ("delta=0.2,0.5", "delta=0.2,0.5: expected one value, got several; soft-reasoning sweep runs each"),
        ("label=é,è", "label='é','è': expected one value, got several"),
        ("method=cot,fire", "method=cot,fire: expected one value, got several"),
        ("label=a\udcff", "label='a\\udcff': expected text in UTF-8, got other bytes"),
        ("label='a\udcff'", "label='a\\udcff': expected text in UTF-8, got other bytes"),
        ("la\udcffbel=a", "la\\udcffbel=a: expected text in UTF-8, got other bytes"),
        ("hydra.run.dir=", "hydra.run.dir: expected a folder, got none; . is the current one"),
        ("hydra.run.dir=''", "hydra.run.dir: expected a folder, got none"),
        ("hydra.run.dir=' '", "hydra.run.dir: expected a folder, got none"),
        ("hydra.run.dir=null", "hydra.run.dir: expected a folder, got none"),
        ("hydra.sweep.dir=", "hydra.sweep.dir: expected a folder, got none"),
        ("hydra.sweep.subdir=", "hydra.sweep.subdir: expected a folder, got none"),
        (
            "label=a=b",
            "label=a=b: expected key=value, got something else; put values with =, commas, brackets or",
        ),
    ],
)
def test_the_cause_is_told(run, word, expected, tmp_path):
    done = run(*FAKE, word)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith(f"soft_reasoning: {expected}") and len(done.stderr.splitlines()) == 1
    assert not [*tmp_path.iterdir()]


def test_a_class_of_one_s_own_takes_its_own_options():
    """Those of the choice that it replaces are not among them."""
    target = "acquisition._target_=botorch.acquisition.UpperConfidenceBound"
    config = compose_config([target, "acquisition.beta=0.25", "acquisition.maximize=false"])
    acquisition = build_method(config).optimiser.acquisition
    assert acquisition.keywords == {"beta": 0.25, "maximize": False}
    kernel = ["surrogate.kernel._target_=gpytorch.kernels.MaternKernel", "surrogate.kernel.nu=1.5"]
    assert build_method(compose_config(kernel)).optimiser.surrogate.kernel.nu == 1.5
    with pytest.raises(UserError, match="acquisition: expected an analytic acquisition function .*betta"):
        build_method(compose_config([target, "acquisition.betta=1"]))
    with pytest.raises(UserError, match="acquisition.betta: expected one of its keys"):
        compose_config(["acquisition=ucb", "acquisition.betta=1"])
