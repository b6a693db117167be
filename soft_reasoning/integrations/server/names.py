"""The model names that clients use: NAME for the configured method, METHOD-NAME for each method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType

from soft_reasoning.configuration.folder import conf_dir


def choices_of(group: str) -> list[str]:
    """Return the choices of a group of the configuration, those of a ``--config-dir`` included."""
    if GlobalHydra.instance().is_initialized():
        found = GlobalHydra.instance().config_loader().get_group_options(group, ObjectType.CONFIG)
    else:
        found = [path.stem for path in Path(conf_dir(), group).glob("*.yaml")]
    return sorted(name for name in found if not name.startswith("_"))


@dataclass(frozen=True)
class Names:
    """What models are called.

    Attributes:
        model: NAME.
        methods: Methods that clients may ask for.
    """

    model: str
    methods: Sequence[str]

    @property
    def served(self) -> list[str]:
        """Every name, the plain one first."""
        return [self.model, *(f"{method}-{self.model}" for method in self.methods)]

    def known(self, name: str) -> bool:
        """Whether ``name`` is served."""
        return name in self.served

    def method(self, name: str) -> str | None:
        """Return the method of a served name; None for the configured one."""
        return None if name == self.model else name.removesuffix(f"-{self.model}")
