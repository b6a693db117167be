"""A store of completions: what an engine has generated once need not be generated again.

The key of a completion is a hash of everything that decides it: the request (:func:`request_key`) and the
engine (:func:`engine_identity`). Completions lie by key in an SQLite file of bounded size, without a change
of any bit.
"""

from __future__ import annotations

import json
import platform
import sqlite3
import zlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from importlib import metadata
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

import numpy
import torch
from torch import Tensor

from soft_reasoning.checks import local_path, real
from soft_reasoning.engine.paths import weights_fingerprint
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.sampling import settings
from soft_reasoning.types import Completion, FinishReason, TopLogprobs, UserError

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
    "url",
    "environment",
    "concurrency",
    "parallel",
    "timeout",
    "retries",
    "key_variable",
    "max_prompt_tokens",
    "max_generated_tokens",
)
"""Settings of an engine that decide its speed and memory, not its completions.

In low precision they change the last bits of sums, as other requests of a batch do. ``device`` is not among
them, because with ``dtype=auto`` it determines the precision."""

PACKAGES = ("soft-reasoning", "torch", "transformers", "vllm")
"""Packages whose versions may decide a completion."""

HANDLED_APART = ("prompt_ids", "soft", "position", "max_new_tokens", "seed", "role", "deadline", "turn")
"""Fields of a request that :func:`request_key` does not take as they are."""

PIECES = 64
"""Parts of a tensor that are summed separately."""
FILE = "completions.sqlite"
"""Name of a store in its folder."""
IN_RUN_FOLDER, NONE = "run", "none"
"""Values of the option ``cache`` that are no folder."""
VERSION = 2
"""Version of the file's format and of everything that decides a completion but is not in its key."""
WAIT = 60.0
"""Seconds to wait while another process writes."""
KEYS_PER_QUERY = 500


def request_key(row: RunningRequest, engine: bytes, writes_in_turns: bool = False) -> bytes:
    """Return the key of a request to ``engine`` (its identity).

    ``role``, ``deadline`` and ``turn`` are left out, since they decide no token of a finished completion,
    unless the engine writes in turns under a deadline. The seed is left out where nothing is drawn.
    """
    request, soft = row.request, row.soft
    drawn = row.max_new_tokens > 0 and any(settings(request.sampling, step)[0] > 0 for step in (0, 1))
    taken = [part.name for part in fields(request) if part.name not in HANDLED_APART]
    facts = {
        **{name: getattr(request, name) for name in taken},
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
        "special": sorted(tokenizer.all_special_ids) if tokenizer is not None else None,
        "served": engine.facts,
        "model": None if config is None else config.to_dict() | {"_name_or_path": None},
    }
    digest = blake2b(json.dumps(facts, default=str).encode())
    if tokenizer is not None:
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
        return iter([("embeddings", engine.embed(range(engine.vocabulary)))] if engine.hidden_size else [])
    return chain(engine.model.named_parameters(), engine.model.named_buffers())


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None of another, such as a clone of this one."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def encode(completion: Completion) -> bytes:
    """Return the bytes of ``completion``: compressed JSON, which keeps every float; tensors are in base64."""
    plain = {part.name: getattr(completion, part.name) for part in fields(completion)}
    return zlib.compress(json.dumps(plain, default=_of_tensor, separators=(",", ":")).encode(), level=1)


def _of_tensor(x: Tensor) -> dict[str, Any]:
    return {"shape": list(x.shape), "float32": b64encode(x.numpy().tobytes()).decode()}


def decode(data: bytes) -> Completion:
    """Return the completion of the bytes of :func:`encode`.

    Raises:
        zlib.error: If the bytes are damaged.
    """
    plain: dict[str, Any] = json.loads(zlib.decompress(data))
    for name, value in plain.items():
        if isinstance(value, dict):
            row = numpy.frombuffer(b64decode(value["float32"]), numpy.float32).reshape(value["shape"])
            with torch.inference_mode(False):  # an ordinary tensor, as the engine's
                plain[name] = torch.from_numpy(row.copy())
        elif isinstance(value, list):
            plain[name] = tuple(value)
    tops = [TopLogprobs(tuple(ids), tuple(logprobs)) for ids, logprobs in plain["top_logprobs"]]
    reason = FinishReason(plain["finish_reason"])
    plain |= {"finish_reason": reason, "top_logprobs": tuple(tops)}
    return Completion(**plain)


class CompletionStore:
    """Completions by key in the SQLite file ``path``, which is created with its folder.

    A killed process loses nothing that :meth:`keep` returned from. Threads and processes may use the file at
    once, but not machines, since SQLite's log does not work on a network's file system.

    Args:
        path: The file.
        gigabytes: Maximum size of all completions; beyond it the oldest are deleted.

    Raises:
        UserError: If the file is damaged, of another version, or locked for more than a minute, or cannot be
            written, here and in every method.
    """

    def __init__(self, path: Path, gigabytes: float) -> None:
        self.path = path
        self._most = real("cache_gb", gigabytes, above=0.0) * 1e9
        self._lock = Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cache: expected a folder, got {path.parent} ({error.strerror})") from error
        with self._one_line_errors():
            self._db = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")  # a power failure may lose the last steps
        with self._transaction():
            version = self._pragma("user_version")
            if version not in (0, VERSION):
                raise UserError(
                    f"cache: expected a file of version {VERSION}, got {self.path} of version {version}; "
                    "delete it, or choose another folder"
                )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS completions (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
            )
            self._db.execute(f"PRAGMA user_version={VERSION}")

    def __len__(self) -> int:
        with self._lock, self._one_line_errors():
            return self._db.execute("SELECT count(*) FROM completions").fetchone()[0]

    def find(self, keys: Collection[bytes]) -> dict[bytes, Completion]:
        """Return those completions of ``keys`` that are stored."""
        wanted, completions = list(dict.fromkeys(keys)), dict[bytes, Completion]()
        with self._lock, self._one_line_errors():
            for start in range(0, len(wanted), KEYS_PER_QUERY):
                part = wanted[start : start + KEYS_PER_QUERY]
                query = f"SELECT key, value FROM completions WHERE key IN ({','.join('?' * len(part))})"
                completions |= {key: decode(value) for key, value in self._db.execute(query, part)}
        return completions

    def keep(self, completions: Mapping[bytes, Completion]) -> None:
        """Store completions by key, in one transaction."""
        rows = [(key, encode(completion)) for key, completion in completions.items()]
        with self._lock, self._one_line_errors(), self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO completions VALUES (?, ?)", rows)
            while self._size() > self._most:
                self._db.execute(
                    "DELETE FROM completions WHERE rowid IN (SELECT rowid FROM completions ORDER BY rowid "
                    "LIMIT 1 + (SELECT count(*) FROM completions) / 10)"
                )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _size(self) -> int:
        return (self._pragma("page_count") - self._pragma("freelist_count")) * self._pragma("page_size")

    def _pragma(self, name: str) -> int:
        return self._db.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _transaction(self) -> Generator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    @contextmanager
    def _one_line_errors(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, zlib.error) as error:
            locked = "locked" in str(error)
            raise UserError(
                f"cache: expected a file of completions, got {self.path}, and {error}; "
                + ("wait for the process that holds it" if locked else "delete it, free space on the disk")
                + ", or take another folder or cache=none"
            ) from error


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
            if not (key and isinstance(outcome, Completion)):
                continue
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
        if cache in (None, NONE) or (cache == IN_RUN_FOLDER and run is None):
            return None
        if cache == IN_RUN_FOLDER and run is not None:
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
