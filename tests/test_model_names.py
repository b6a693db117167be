"""``from_pretrained`` takes every name that ``model=NAME`` takes on the command line, with its settings."""

import pytest

from soft_reasoning import SoftReasoner
from soft_reasoning.cli.compose import compose_config, plain
from soft_reasoning.configuration.data import models
from soft_reasoning.engine.fake import FakeEngine


@pytest.fixture
def loaded(monkeypatch):
    """The configurations of engines that are asked for."""
    asked = []
    monkeypatch.setattr(
        "soft_reasoning.reasoner.build_engine", lambda config: asked.append(config) or FakeEngine()
    )
    return asked


@pytest.mark.parametrize("name", [name for name in models() if name != "custom"])
def test_a_name_of_conf_model_has_its_settings(name, loaded):
    with SoftReasoner.from_pretrained(name) as reasoner:
        assert repr(reasoner).startswith(f"SoftReasoner('{name}'")
    [config] = loaded
    theirs = plain(compose_config([f"model={name}"]))
    assert {key: config["model"][key] for key in theirs["model"]} == theirs["model"]
    assert config["engine"] == theirs["engine"]
    assert reasoner.answer_type == ("number" if name == "demo" else "open")


def test_an_option_replaces_a_setting_of_the_name(loaded):
    SoftReasoner.from_pretrained("smollm2_135m", dtype="float16").close()
    model = loaded[0]["model"]
    assert (model["dtype"], model["temperature"], model["sigma"]) == ("float16", 0.3, 1.0)
    assert loaded[0]["engine"]["dtype"] == "float16"
