"""Connecting to Ray, and counting how many workers fit."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Any

from soft_reasoning.types import UserError

REACHED = 5.0
"""Seconds within which a cluster must answer; Ray itself waits for minutes."""


def connect(address: str) -> tuple[Any, bool]:
    """Return Ray connected to ``address``, and whether this call opened the connection.

    ``local`` starts Ray on this machine, ``auto`` finds one that runs on it, anything else is HOST:PORT. An
    open session is used as it is.

    Raises:
        UserError: Without Ray, or if no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray prints a paragraph for every dead worker, which we report in one line.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")
    try:
        import ray
    except ImportError as error:
        raise UserError('launcher=ray needs Ray; pip install "soft-reasoning[ray]"') from error
    if ray.is_initialized():
        return ray, False
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        if address not in ("local", "auto"):
            _reach(address)
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"expected a Ray cluster at ray.address={address}, found none; start one there (ray start "
            "--head), or leave ray.address out to run on this machine alone"
        ) from error
    return ray, True


def _reach(address: str) -> None:
    host, _, port = str(address).rpartition(":")
    if not (host and port.isdigit()) or "/" in host:
        raise UserError(f"expected ray.address to be local, auto or HOST:PORT, got {address}")
    socket.create_connection((host, int(port)), timeout=REACHED).close()


def places(
    resources: Mapping[str, float], workers: int | None, cpus: float, gpus: float | None
) -> tuple[int, float]:
    """Return the number of workers and the GPUs of each.

    Args:
        resources: The cluster's resources, by Ray's names.
        workers: How many; None is as many as fit.
        cpus: CPUs of each worker.
        gpus: GPUs of each worker; None is 1 if there are any.

    Raises:
        UserError: If the cluster has too few.
    """
    if gpus is None:
        gpus = 1.0 if resources.get("GPU", 0) >= 1 else 0.0
    room = []
    for name, each in (("GPU", gpus), ("CPU", cpus)):
        if each == 0:
            continue
        there = resources.get(name, 0)
        # A fraction shares one device and is not split between two.
        fits = int(there / each + 1e-9) if each >= 1 else int(there) * int(1 / each + 1e-9)
        wanted = workers or 1
        if fits < wanted:
            raise UserError(
                f"expected {name}s for {wanted} worker{'s' * (wanted > 1)} of {each:g} each, found {there:g} "
                f"in all; lower ray.workers or ray.{name.lower()}s"
            )
        room.append(fits)
    return workers or min(room, default=1), gpus
