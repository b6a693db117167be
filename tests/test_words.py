"""A command's words: letters in quotes, classes of one's own, and messages that tell the cause."""

import pytest

from soft_reasoning.cli.compose import checked_method, compose_config
from soft_reasoning.types import UserError

FAKE = ("engine=fake", "limit=1", "progress=false", "max_new_tokens=4")


@pytest.mark.parametrize("value", ["ünï", "日本", "~x", "x#y", "a&b", "a`b", "x\u00a0y", "é@2%"])
def test_any_letter_is_read_in_quotes(value):
    assert compose_config([f"label='{value}'"]).label == value


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("label=é", "label=é: expected key=value, got something else; put a value with other"),
        ("delta=0.2,0.5", "delta=0.2,0.5: expected one value, got several; soft-reasoning sweep runs each"),
        ("hydra.run.dir=", "hydra.run.dir: expected a whole path, got none; . is this folder"),
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
    acquisition = checked_method(config).optimiser.acquisition
    assert acquisition.keywords == {"beta": 0.25, "maximize": False}
    kernel = ["surrogate.kernel._target_=gpytorch.kernels.MaternKernel", "surrogate.kernel.nu=1.5"]
    assert checked_method(compose_config(kernel)).optimiser.surrogate.kernel.nu == 1.5
    for words in ([target, "acquisition.betta=1"], ["acquisition=ucb", "acquisition.betta=1"]):
        with pytest.raises(
            UserError, match="^acquisition.betta: expected an option of .* did you mean beta?"
        ):
            checked_method(compose_config(words))
