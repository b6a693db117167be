"""The completions of one engine in a store: those that it takes from there, and those that it adds.

The key of a completion is a hash of everything that decides it: the request (:func:`request_key`) and
the engine (:func:`engine_identity`).
"""

from __future__ import annotations

import json
import platform
from array import array
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.checks import local_path
from soft_reasoning.engine.completions.store import CompletionStore
from soft_reasoning.engine.paths import weights_fingerprint
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.sampling import settings
from soft_reasoning.types import Completion

RESOURCES = (
    "max_batch_tokens",
    "max_batch_rows",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "device_map",
    "threads",
)
"""Settings of an engine that decide its speed and memory, not its completions.

In low precision they change the last bits of sums, as other requests of a batch do. ``device`` is not among
them, because with ``dtype=auto`` it determines the precision."""

PACKAGES = ("soft-reasoning", "torch", "transformers", "vllm")
"""Packages whose versions may decide a completion."""

APART = (
    "prompt_ids",
    "soft",
    "position",
    "max_new_tokens",
    "seed",
    "role",
    "deadline",
    "turn",
)
"""Fields of a request that :func:`request_key` does not take as they are."""

PIECES = 64
"""Parts of a tensor that are summed separately."""
FILE = "completions.sqlite"
"""Name of a store in its folder."""
OWN, NONE = "run", "none"
"""Values of the option ``cache`` that are no folder."""


def request_key(row: RunningRequest, engine: bytes, writes_in_turns: bool = False) -> bytes:
    """Return the key of a request to ``engine`` (its identity).

    ``role``, ``deadline`` and ``turn`` are left out, since they decide no token of a finished completion,
    unless the engine writes in turns under a deadline. The seed is left out where nothing is drawn.
    """
    request, soft = row.request, row.soft
    drawn = row.max_new_tokens > 0 and any(settings(request.sampling, step)[0] > 0 for step in (0, 1))
    facts = {
        **{part.name: getattr(request, part.name) for part in fields(request) if part.name not in APART},
        "max_new_tokens": row.max_new_tokens,
        "seed": request.seed if drawn else None,
        **({"in_turns": True} if writes_in_turns and drawn and request.deadline is not None else {}),
        "position": len(row.head),
        "soft": None if soft is None else (tuple(soft.shape), soft.dtype),
    }
    digest = blake2b(engine + repr(facts).encode(), digest_size=20)
    digest.update(array("q", row.head + row.tail).tobytes())
    if soft is not None:
        digest.update(_bytes(soft).cpu().numpy().tobytes())
    return digest.digest()


@torch.no_grad()
def engine_identity(engine: Any) -> bytes:
    """Return a hash of what an engine's completions depend on besides the request.

    These are its class and settings, its weights and their dtype, the model's configuration, the texts of its
    tokens, and the versions of packages. Weights in memory are read, so adapters and quantization
    count, whatever their names. The fingerprint of the files stands for weights that are elsewhere.
    """
    tokenizer, config = engine.tokenizer, getattr(engine.model, "config", None)
    facts = {
        "class": f"{type(engine).__module__}.{type(engine).__qualname__}",
        "settings": {key: value for key, value in engine.settings.items() if key not in RESOURCES},
        "versions": {name: version_of(name) for name in PACKAGES},
        "device": getattr(engine.device, "type", None),
        "eos": sorted(engine.eos_ids),
        "special": sorted(tokenizer.all_special_ids),
        "model": None if config is None else _configuration(config),
    }
    digest = blake2b(json.dumps(facts, default=str).encode())
    known = len(tokenizer) if hasattr(tokenizer, "__len__") else engine.vocabulary
    digest.update(tokenizer.decode(list(range(min(known, engine.vocabulary)))).encode(errors="replace"))
    elsewhere = False
    for name, tensor in _tensors(engine):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if tensor.is_meta:
            elsewhere = True
        else:
            digest.update(checksum(tensor))
    if elsewhere:
        revision = getattr(config, "_commit_hash", None)
        digest.update(weights_fingerprint(engine.model.config._name_or_path, revision).encode())
    return digest.digest()


def checksum(tensor: Tensor) -> bytes:
    """Return sums over ``PIECES`` parts of the tensor's bytes; reads gigabytes in a second."""
    raw = _bytes(tensor)
    if raw.storage_offset() % 8:
        raw = raw.clone()
    whole = len(raw) // (8 * PIECES) * (8 * PIECES)
    sums = raw[:whole].view(torch.int64).view(PIECES, -1).sum(-1)
    return sums.cpu().numpy().tobytes() + raw[whole:].cpu().numpy().tobytes()


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _tensors(engine: Any) -> Iterator[tuple[str, Tensor]]:
    if engine.model is None:
        return iter([("embeddings", engine.embed(range(engine.vocabulary)))])
    return chain(engine.model.named_parameters(), engine.model.named_buffers())


def _configuration(config: Any) -> dict[str, Any]:
    """A model's configuration without names of places."""
    return {key: value for key, value in config.to_dict().items() if key != "_name_or_path"}


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None of another, such as a clone of this one."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class Replay:
    """The part of ``store`` that belongs to ``engine``, under whose lock it is used."""

    def __init__(self, engine: Any, store: CompletionStore) -> None:
        self._store, self._identity = store, engine_identity(engine)
        self._in_turns: bool = engine.writes_in_turns
        self._keys: dict[int, tuple[bytes, int]] = {}  # of queued requests, with their ``max_new_tokens``

    def begin(self, rows: Mapping[int, RunningRequest]) -> dict[int, Completion]:
        """Return the stored completions among ``rows``, by ticket, and note the keys of the others."""
        keys = {ticket: request_key(row, self._identity, self._in_turns) for ticket, row in rows.items()}
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
        return cls(local_path("cache", cache).absolute() / FILE, gigabytes)


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
