"""The completions of one engine in a store: those that it takes from there, and those that it adds."""

from __future__ import annotations

import platform
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from soft_reasoning.engine.completions.key import engine_identity, request_key
from soft_reasoning.engine.completions.store import CompletionStore
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.types import Completion

FILE = "completions.sqlite"
"""Name of a store in its folder."""
OWN, NONE = "run", "none"
"""Values of the option ``cache`` that are no folder."""


class Replay:
    """The part of ``store`` that belongs to ``engine``, under whose lock it is used."""

    def __init__(self, engine: Any, store: CompletionStore) -> None:
        self._store, self._identity = store, engine_identity(engine)
        self._keys: dict[int, tuple[bytes, int]] = {}  # of queued requests, with their ``max_new_tokens``

    def begin(self, rows: Mapping[int, RunningRequest]) -> dict[int, Completion]:
        """Return the stored completions among ``rows``, by ticket, and note the keys of the others."""
        keys = {ticket: request_key(row, self._identity) for ticket, row in rows.items()}
        stored = self._store.find(set(keys.values()))
        replayed: dict[int, Completion] = {}
        for ticket, key in keys.items():
            if key in stored:
                replayed[ticket] = replace(stored[key], replayed=True)
            else:
                self._keys[ticket] = key, rows[ticket].max_new_tokens
        return replayed

    def end(self, outcomes: Mapping[int, Any]) -> None:
        """Store the outcomes of a step that are whole completions: a deadline has not cut them."""
        whole: dict[bytes, Completion] = {}
        for ticket, outcome in outcomes.items():
            key, max_tokens = self._keys.pop(ticket, (b"", 0))
            if key and isinstance(outcome, Completion):
                if not outcome.cut or outcome.generated_tokens == max_tokens:
                    whole[key] = outcome
        if whole:
            self._store.keep(whole)

    def forget(self, tickets: Collection[int]) -> None:
        """Forget requests that ended without a completion."""
        for ticket in tickets:
            self._keys.pop(ticket, None)


@dataclass(frozen=True)
class StoreFile:
    """The place of a store.

    Attributes:
        path: The file.
        gigabytes: As in :class:`CompletionStore`.
        machine: The machine whose processes may use the file; None if every machine has its own.
    """

    path: Path
    gigabytes: float
    machine: str | None = None

    @classmethod
    def of(cls, cache: str | None, gigabytes: float, run: Path | None = None) -> StoreFile | None:
        """Return the place that the option ``cache`` names, or None: ``run`` is the folder ``run``."""
        if cache in (None, NONE) or (cache == OWN and run is None):
            return None
        if cache == OWN and run is not None:
            return cls(run.absolute() / FILE, gigabytes, platform.node())
        return cls(Path(cache).expanduser().absolute() / FILE, gigabytes)


@contextmanager
def replaying(file: StoreFile | None, engines: Iterable[Any]) -> Generator[None]:
    """Give ``engines`` the store in ``file`` while the context is open; without a place, do nothing."""
    if file is None or file.machine not in (None, platform.node()):
        yield
        return
    with closing(CompletionStore(file.path, file.gigabytes)) as store:
        engines = list(dict.fromkeys(engines))
        try:
            for engine in engines:
                with engine.lock:
                    engine.replay = Replay(engine, store)
            yield
        finally:
            for engine in engines:
                with engine.lock:
                    engine.replay = None
