"""Every YAML of the search's groups composes and instantiates."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

CONF = Path(__file__).parents[2] / "conf"


def names(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def load(group, name):
    return OmegaConf.load(CONF / group / f"{name}.yaml")


@pytest.mark.parametrize("group", ["embedding", "surrogate", "acquisition"])
def test_groups_instantiate(group):
    for name in names(group):
        assert instantiate(load(group, name)) is not None


@pytest.mark.parametrize("search", names("search"))
def test_search_takes_its_surrogate_and_acquisition_from_their_groups(search):
    cfg = OmegaConf.create(
        {
            "surrogate": load("surrogate", "rbf"),
            "acquisition": load("acquisition", "adaptive_ei"),
            "search": load("search", search),
        }
    )
    cfg.surrogate.noise = 0.125
    cfg.search.rounds = 3
    optimiser = instantiate(cfg.search.optimiser)
    assert optimiser.surrogate.noise == 0.125
    assert instantiate(cfg.search.stopping).rounds == 3
