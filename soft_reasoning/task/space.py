"""Soft tokens that all questions of a task share: a space of them, and a point of it that was found.

u in R^d -> vectors (m, D) -> soft tokens: the vectors, or a question's greedy tokens plus the vectors
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.checks import OptionError, choice, counts, local_path, real
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.paths import weights_fingerprint
from soft_reasoning.prompts import PLACEMENTS
from soft_reasoning.schedule.effects import BudgetSpent
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.solutions import solution_request
from soft_reasoning.search.embedding import LinearSubspace, SimplexSubspace, gaussian_matrix
from soft_reasoning.types import Generate, Problem, Prompt, Request, UserError

SCALES = {"vector": 1.5, "offset": 1.0, "mixture": 3.0}
"""The kinds of spaces with their default scales."""
PROBE = Problem("prompt", "1 2 3", None)
"""A question whose prompt identifies the wording."""


@dataclass(frozen=True, kw_only=True)
class TaskSpace:
    """A family of soft tokens, the same for every question.

    Args:
        kind: ``vector``: x = scale rms A u / sqrt(d), one Gaussian matrix A for all soft tokens together.
            ``offset``: the same, added to each question's greedy first tokens. ``mixture``: each soft token
            is the mixture of the ``dim`` first tokens that are likeliest over the questions, with weights
            softmax(scale u).
        tokens: m, soft tokens.
        scale: In units of the embedding table's root mean square, or the inverse temperature of a mixture.
            None is that of ``SCALES``.
        dim: d, dimensions of the search (of each soft token for a mixture).
        placement: Place of the soft tokens: ``last`` begins the answer, ``first`` is before the question.

    Raises:
        OptionError: For a value out of its range, or an offset that begins no answer.
    """

    kind: str = "vector"
    tokens: int = 1
    scale: float | None = None
    dim: int = 20
    placement: str = "last"

    def __post_init__(self) -> None:
        choice("kind", self.kind, list(SCALES))
        choice("placement", self.placement, PLACEMENTS)
        counts(self, "tokens", "dim")
        if self.scale is not None:
            real("scale", self.scale, above=0.0)
        if self.anchored and self.placement != "last":
            raise OptionError("placement", f"expected last with kind=offset, got {self.placement}")

    @property
    def anchored(self) -> bool:
        """Whether a question's greedy first tokens are added to the vectors."""
        return self.kind == "offset"

    @property
    def likely_tokens(self) -> int:
        """Number of likely first tokens that :meth:`bind` needs."""
        return self.dim if self.kind == "mixture" else 0

    @property
    def dimensions(self) -> int:
        """Dimensions of a point u."""
        return self.dim * (self.tokens if self.kind == "mixture" else 1)

    def bind(self, engine: Engine, seed: int, likely: Sequence[int] = ()) -> Callable[[Tensor], Tensor]:
        """Return the map from points (n, d) to vectors (n, m, D).

        ``seed`` draws the matrix A; ``likely`` are the ids of the likely tokens.
        """
        scale = SCALES[self.kind] if self.scale is None else self.scale
        if self.kind == "mixture":
            return SimplexSubspace(engine.embed(likely).double(), self.tokens, scale)
        width = self.tokens * engine.hidden_size
        A = gaussian_matrix(seed, width, self.dim)
        linear = LinearSubspace(torch.zeros(1, width), A, scale * engine.embedding_rms / math.sqrt(self.dim))
        return lambda U: linear(U).reshape(len(U), self.tokens, engine.hidden_size)


@dataclass(frozen=True)
class TaskPoint:
    """Soft tokens that were found for a task, in a file of plain numbers.

    Attributes:
        vectors: (m, D).
        anchored: Whether each question's greedy first tokens are added to them.
        placement: As in :class:`TaskSpace`.
        u: The point in its space.
        made_for: The model's weights and the prompt, by :func:`made_for`.
        questions: Id and :func:`question_fingerprint` of each question that it was found on.
    """

    vectors: tuple[tuple[float, ...], ...]
    anchored: bool = False
    placement: str = "last"
    u: tuple[float, ...] = ()
    made_for: Mapping[str, str] = field(default_factory=dict[str, str])
    questions: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def load(cls, path: str | PathLike[str]) -> TaskPoint:
        """Read a file of :meth:`save`.

        Raises:
            OptionError: If the file is missing or holds no point.
        """
        expected = "expected a file that soft-reasoning tune wrote"
        file = local_path("point", path)
        try:
            content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            content["vectors"] = tuple(tuple(map(float, row)) for row in content["vectors"])
            content["u"] = tuple(map(float, content["u"]))
            point = cls(**content)
        except OSError as error:
            raise OptionError("point", f"{expected}, got {path} ({error.strerror})") from error
        except (ValueError, KeyError, TypeError) as error:
            raise OptionError("point", f"{expected}, got {path}, another file; tune again") from error
        if not point.vectors or len({len(row) for row in point.vectors}) != 1:
            raise OptionError("point", f"{expected}, got {path} without vectors of one width; tune again")
        choice("point.placement", point.placement, PLACEMENTS)
        return point

    def save(self, path: str | PathLike[str]) -> None:
        """Write the point as JSON."""
        local_path("point", path).write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    def check_fits(self, context: Context) -> None:
        """Reject another model or prompt than the point was made for.

        Raises:
            UserError: In one line that names the difference.
        """
        for key, value in made_for(context).items():
            if self.made_for.get(key) != value:
                raise UserError(
                    f"point: expected one that was made for this {key}, got one for another; "
                    f"tune again, or take the {key} that it was made for"
                )

    def check_unseen(self, problems: Sequence[Problem]) -> None:
        """Reject ``problems`` among which are questions that the point was found on.

        Raises:
            UserError: In one line that names one of them.
        """
        known = {mark: name for name, mark in self.questions.items()}
        seen = [known[mark] for p in problems if (mark := question_fingerprint(p.question)) in known]
        if seen:
            raise UserError(
                f"point: expected other questions than it was found on, got {len(seen)} of those, such as "
                f"{seen[0]}; choose others with dataset.offset or dataset.split"
            )

    def request(
        self, problem: Problem, context: Context, max_new_tokens: int, **fields: Any
    ) -> Steps[Callable[[int], Request]]:
        """Return the requests for completions after the soft tokens, by the index of their random draws."""
        soft = torch.tensor(self.vectors, dtype=torch.float32)
        if self.anchored:
            soft = soft + (yield from greedy_anchor(context.prompts.solve(problem), len(soft), context))
        return lambda index: task_request(
            soft, self.placement, problem, context, max_new_tokens, index=index, **fields
        )


def task_request(
    soft: Tensor, placement: str, problem: Problem, context: Context, max_new_tokens: int, **fields: Any
) -> Request:
    """Return the request for a completion with ``soft`` (m, D) at ``placement``."""
    prompt = context.prompts.solve(problem)
    position = context.prompts.position(prompt, placement, problem, seed=context.seed)
    return solution_request(problem, context, max_new_tokens, soft=soft, position=position, **fields)


def greedy_anchor(prompt: Prompt, count: int, context: Context) -> Steps[Tensor]:
    """Return the embeddings (count, D) of the greedy first tokens."""
    request = Request(prompt.ids, max_new_tokens=count, min_new_tokens=count, role="anchor")
    [completion] = yield Generate([request])
    if completion.generated_tokens < count:
        raise BudgetSpent
    return context.engine.embed(completion.token_ids)


def question_fingerprint(question: str) -> str:
    """Return sixteen hexadecimal digits that identify a question's text."""
    return hashlib.sha256(question.strip().encode()).hexdigest()[:16]


def made_for(context: Context) -> dict[str, str]:
    """Return what gives vectors their meaning: fingerprints of weights, adapter and prompt.

    They are the same for every engine that runs the model. A model in memory, which has no files, is known by
    its embedding table.
    """
    config = getattr(context.engine.model, "config", None)
    name = getattr(config, "_name_or_path", "")
    if name:
        model = _fingerprint(name, getattr(config, "_commit_hash", None))
    else:
        table = context.engine.embed(range(min(context.engine.vocabulary, 1024)))
        model = hashlib.sha256(table.numpy().tobytes()).hexdigest()[:16]
    if adapter := context.engine.settings.get("adapter"):
        model += f"+{_fingerprint(adapter, None)}"
    ids = json.dumps(context.prompts.solve(PROBE).ids)
    return {"model": model, "prompt": hashlib.sha256(ids.encode()).hexdigest()[:16]}


@lru_cache(maxsize=8)
def _fingerprint(name: str, revision: str | None) -> str:
    """The fingerprint of a model's files, which every question asks for."""
    return weights_fingerprint(name, revision)
