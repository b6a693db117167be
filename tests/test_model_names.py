"""``from_pretrained`` takes every name that ``model=NAME`` takes on the command line, with its settings."""

import pytest

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.cli.compose import compose_config, plain
from soft_reasoning.configuration.context import build_engine
from soft_reasoning.configuration.data import models
from soft_reasoning.engine.fake import FakeEngine


@pytest.mark.parametrize("name", [name for name in models() if name != "custom"])
def test_a_name_of_conf_model_has_its_settings(name, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        "soft_reasoning.reasoner.build_engine", lambda config: (loaded.append(config), FakeEngine())[1]
    )
    with SoftReasoner.from_pretrained(name) as reasoner:
        assert repr(reasoner).startswith(f"SoftReasoner('{name}'")
    [config] = loaded
    theirs = plain(compose_config([f"model={name}"]))
    assert {key: config["model"][key] for key in theirs["model"]} == theirs["model"]
    assert config["engine"] == theirs["engine"]
    assert reasoner.answer_type == ("number" if name == "demo" else "open")


def test_an_option_replaces_a_setting_of_the_name(monkeypatch):
    loaded = []
    monkeypatch.setattr(
        "soft_reasoning.reasoner.build_engine", lambda config: (loaded.append(config), FakeEngine())[1]
    )
    SoftReasoner.from_pretrained("smollm2_135m", dtype="float16").close()
    model = loaded[0]["model"]
    assert (model["dtype"], model["temperature"], model["sigma"]) == ("float16", 0.3, 1.0)
    assert loaded[0]["engine"]["dtype"] == "float16"


@pytest.mark.parametrize("name", ["qwen25_coder_0_5b", "qwen25_coder_1_5b"])
def test_a_name_whose_file_is_missing_is_one_line(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SOFT_REASONING_MODELS", str(tmp_path))
    models.cache_clear()
    with pytest.raises(UserError, match=f"found no {tmp_path}/qwen2.5-coder-.*gguf") as python:
        SoftReasoner.from_pretrained(name)
    with pytest.raises(UserError) as command:
        build_engine(compose_config([f"model={name}"]))
    models.cache_clear()
    assert "\n" not in str(python.value) and str(python.value) == str(command.value)


def test_a_folder_of_the_same_name_is_named_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen2_7b").mkdir()
    with pytest.raises(UserError, match="got .*qwen2_7b and an error"):
        SoftReasoner.from_pretrained("./qwen2_7b")
