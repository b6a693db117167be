"""Models, prompts and files as choices of Hydra: ``model=OWNER/NAME``, ``prompt=math``, ``dataset=FILE``.

A source of configurations is Hydra's own extension for this, so no word of a command line is rewritten, and
such names also stand in sweeps, in experiments and in ``override /model: OWNER/NAME``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf

from soft_reasoning.checks import local_path
from soft_reasoning.configuration.data import is_file_name, models, prompt_names, read_model, read_prompt

SCHEME = "data"


class Data(ConfigSource):
    """The models and prompts of ``conf/`` and the user's, and files of questions."""

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path in ("", "model", "prompt")

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if results_filter is ObjectType.CONFIG:
            return {"model": [*models()], "prompt": prompt_names()}.get(config_path, [])
        return ["model", "prompt"] if not config_path else []

    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.partition("/")
        if group == "model":
            return name in models() or is_path(name)
        if group == "prompt":
            return name in prompt_names() or is_file_name(name)
        return group == "dataset" and bool(Path(name).suffix)

    def load_config(self, config_path: str) -> ConfigResult:
        group, _, name = config_path.partition("/")
        if group == "dataset":
            content: dict[str, Any] = {"defaults": ["/dataset/custom@_here_", "_self_"], "path": name}
            return self._result(config_path, content, None)
        entry = read_model(name) if group == "model" else read_prompt(name)
        values, top = dict(entry.values), dict[str, Any]()
        if group == "model" and "max_new_tokens" in values:
            top["max_new_tokens"] = values.pop("max_new_tokens")
        if group == "prompt" and is_file_name(name):
            values["path"] = str(local_path("prompt", name).absolute())
        return self._result(config_path, {**overriding(entry.chooses), **top, group: values}, "_global_")

    def _result(self, path: str, content: Mapping[str, Any], package: str | None) -> ConfigResult:
        where = f"{SCHEME}://{path}"
        return ConfigResult(
            config=OmegaConf.create({**content}), path=where, provider=SCHEME, header={"package": package}
        )


def overriding(chooses: Mapping[str, str]) -> dict[str, Any]:
    """Return the defaults list of a choice that makes choices of other groups the default."""
    overrides = [{f"override /{group}": name} for group, name in chooses.items()]
    return {"defaults": [*overrides, "_self_"]} if overrides else {}


def is_path(model: str) -> bool:
    """Whether a value of ``model`` is a folder or a name on the hub instead of a name of conf/models.yaml."""
    return "/" in model or model.startswith((".", "~")) or model.lower().endswith(".gguf")


def register_source() -> None:
    """Make the source known to Hydra; ``hydra.searchpath`` of conf/config.yaml names it."""
    Plugins.instance().register(Data)
