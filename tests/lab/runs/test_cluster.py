"""Ray that is missing, that does not answer, and that is too small: one line each."""

import sys

import pytest

from soft_reasoning.lab.runs.ray import RayLauncher, connect, plan_workers
from soft_reasoning.types import UserError

MACHINE = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9}


@pytest.mark.parametrize(
    ("asked", "planned"),
    [
        ((None, 1, None), (2, 1.0)),  # a worker for each GPU
        ((None, 4, 0.25), (2, 0.25)),  # the CPUs are the bound
        ((None, 0.5, 0.4), (4, 0.4)),  # two on each GPU, not five on both
        ((None, 0, 0), (1, 0)),
    ],
)
def test_as_many_workers_as_there_is_room_for(asked, planned):
    assert plan_workers(MACHINE, *asked) == planned


def test_more_than_there_is_is_refused():
    expected = "expected room for 3 workers of 1 CPUs and 1 GPUs, got 2 GPUs, 8 CPUs; lower"
    with pytest.raises(UserError, match=expected):
        plan_workers(MACHINE, 3, 1, 1)


@pytest.mark.parametrize("options", [{"workers": 0}, {"cpus": None}, {"gpus": 2.5}])
def test_bad_options_are_refused(options):
    with pytest.raises(UserError, match=f"{next(iter(options))}: expected"):
        RayLauncher(**options)


def test_a_missing_ray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="pip install ray"):
        connect("local")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:10001", "127.0.0.1:99999"])
def test_no_cluster_at_the_address(address):
    pytest.importorskip("ray")
    with pytest.raises(UserError, match=rf"cluster at launcher.address={address} .HOST:PORT., found none"):
        connect(address)
