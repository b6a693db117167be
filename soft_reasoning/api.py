"""Soft Reasoning from Python: SoftReasoner.from_pretrained(name).solve(question)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from soft_reasoning.build import build_context, build_engine, build_method, check_lengths
from soft_reasoning.config import compose_config
from soft_reasoning.context import Context
from soft_reasoning.methods.base import Method
from soft_reasoning.scheduler import drive
from soft_reasoning.types import Problem, Result, UserError


class SoftReasoner:
    """A method bound to a loaded model. Build one with :meth:`from_pretrained`."""

    def __init__(self, method: Method, context: Context, answer_type: str = "number"):
        self.method = method
        self.context = context
        self.answer_type = answer_type

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str = "demo",
        *,
        prompt: str | None = None,
        answer_type: str = "number",
        seed: int = 0,
        overrides: Sequence[str] = (),
        **options: Any,
    ) -> SoftReasoner:
        """Load a model by its name on the hub or its folder; "demo" is the one that ships.

        ``prompt`` is a choice of the configuration group of that name (by default ``demo`` for the
        bundled model, ``boolean`` for that ``answer_type``, else ``math``). ``overrides`` are
        configuration overrides as on the command line, such as ``"method=random_embedding"`` or
        ``"embedding.dim=20"``; ``options`` go to the model's configuration (dtype, device_map, ...).

        Raises UserError, in one line, for a model or an option that does not exist.
        """
        default = "demo" if name_or_path == "demo" else {"boolean": "boolean"}.get(answer_type, "math")
        config = compose_config(
            [
                f"prompt={prompt or default}",
                f"model.path={name_or_path}",
                f"seed={seed}",
                *(f"model.{key}={value}" for key, value in options.items()),
                *overrides,
            ]
        )
        method = build_method(config)
        return cls(method, build_context(config, build_engine(config)), answer_type)

    def solve(
        self, questions: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
    ) -> Result | list[Result]:
        """Answer one question (a Result) or several together (a list, in the order given).

        A Result has ``.answer`` (text; None when nothing could be read), ``.candidates`` and ``.trace``.
        A mapping with the keys question and id fixes the id that seeds are drawn from; otherwise a
        question's own text is its id, so that it gets the same answer alone and in any list.
        """
        alone = isinstance(questions, str | Mapping)
        problems = [self._problem(q) for q in ([questions] if alone else questions)]
        check_lengths(problems, self.context)
        unique = {p.id: p for p in problems}
        results = {
            problem.id: result
            for problem, result in drive(
                list(unique.values()), self.method, self.context, engine=self.context.engine
            )
        }
        return results[problems[0].id] if alone else [results[p.id] for p in problems]

    def close(self) -> None:
        """Give the model's memory back."""
        self.context.engine.close()

    def _problem(self, question: str | Mapping[str, Any]) -> Problem:
        if isinstance(question, str):
            question = {"question": question}
        if not isinstance(question.get("question"), str) or not question["question"].strip():
            raise UserError(f"solve: expected a question in words, got {question.get('question')!r}")
        return Problem(
            str(question.get("id", question["question"])), question["question"], None, self.answer_type
        )
