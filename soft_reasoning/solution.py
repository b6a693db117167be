"""A result with its explanation: the chosen answer, its votes, and the texts of the model."""

from __future__ import annotations

import html
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from soft_reasoning.answers import AnswerGrader, equal
from soft_reasoning.judge.final import (
    FinalAnswer,
    SearchHistory,
    Vote,
    count_votes,
    cut_warning,
    stored_verdicts,
    tokens_when_cut,
)
from soft_reasoning.schedule.job import Job
from soft_reasoning.types import Candidate, Problem, Result, Usage

log: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Solution(Result):
    """The :class:`~soft_reasoning.types.Result` of a question, with its explanation.

    Attributes:
        question: The question.
        method: The method's name.
        rule: The rule of the final answer; None if the method has none.
        votes: The votes for each answer, the largest weight first.
        warning: In the server, which field of the request could not act, and why.

    Example:
        >>> solution = reasoner.solve(
        ...     "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"
        ... )
        >>> print(solution.text)
        >>> print(solution.explain())
    """

    question: str = ""
    method: str = ""
    rule: str | None = None
    votes: tuple[Vote, ...] = ()
    warning: str | None = None

    @classmethod
    def of(
        cls, result: Result, problem: Problem, method: str, final: object, grader: AnswerGrader
    ) -> Solution:
        """Return the solution of ``problem`` by the method called ``method``, with its final rule."""
        rule = final if isinstance(final, FinalAnswer) else None
        history = SearchHistory(result.candidates, stored_verdicts(result.trace), grader, problem.answer_type)
        return cls(
            **{part.name: getattr(result, part.name) for part in fields(Result)},
            question=problem.question,
            method=method,
            rule=None if rule is None else rule.rule,
            votes=tuple(count_votes(history, rule)),
        )

    @property
    def text(self) -> str:
        """The chosen solution.

        It is the text of the candidate of the highest reward that has the final answer, else the verifier's
        text with that answer. Without a final answer it is the candidate of the highest reward, or the
        longest text if a budget ended all of them (:attr:`unfinished`).
        """
        written = self._verifiers_text()
        if written is not None:
            return written
        return "" if self.chosen is None else self.chosen.text

    @property
    def chosen(self) -> Candidate | None:
        """The candidate of :attr:`text`; None if the verifier wrote the text or there is no candidate."""
        if self._verifiers_text() is not None:
            return None
        if self.unfinished:
            return max(self.candidates, key=lambda candidate: len(candidate.written), default=None)
        agreeing = [c for c in self.candidates if self._agrees(c)] or self.candidates
        return max(agreeing, key=lambda candidate: candidate.rank, default=None)

    @property
    def unfinished(self) -> str | None:
        """What to say if a budget was spent before any candidate ended or gave an answer; None otherwise."""
        finished = self.answer is not None or any(not c.cut or c.answer is not None for c in self.candidates)
        if self.spent is None or finished:
            return None
        text = "; the text is the longest of them, unfinished" if self.candidates else ""
        return f"{self.ended}: none of {_number(len(self.candidates), 'candidate')} finished{text}"

    @property
    def ranked(self) -> list[Candidate | None]:
        """:attr:`chosen`, then the other candidates by reward."""
        chosen = self.chosen
        rest = [candidate for candidate in self.candidates if candidate is not chosen]
        rest.sort(key=lambda candidate: candidate.rank, reverse=True)
        return [chosen, *rest]

    @property
    def rounds(self) -> list[list[Candidate]]:
        """The candidates of each round."""
        count = max((c.round for c in self.candidates), default=-1) + 1
        return [[c for c in self.candidates if c.round == number] for number in range(count)]

    @property
    def ended(self) -> str | None:
        """Why the rounds ended: "converged" or "rounds", or "max_tokens" or "max_seconds", the budget spent.

        Methods without rounds end by a budget only; otherwise it is None.
        """
        return next((entry["ended"] for entry in reversed(self.trace) if entry.get("ended")), self.spent)

    @property
    def total(self) -> Usage:
        """The token counts of all roles together."""
        return sum(self.usage.values(), Usage())

    @property
    def generated_tokens(self) -> int:
        """Number of generated tokens, including the verifier's."""
        return self.total.generated_tokens

    def summary(self) -> dict[str, Any]:
        """Return the answer, the method, the numbers of candidates and rounds, and why the rounds ended."""
        return {
            "method": self.method,
            "answer": self.answer,
            "candidates": len(self.candidates),
            "rounds": len(self.rounds),
            "ended": self.ended,
            **({"warning": self.warning} if self.warning else {}),
        }

    def explain(self, width: float = 100) -> str:
        """Return why the rounds ended, the votes with their weights and each round, in lines of ``width``."""
        lines = [
            f"Question: {_line(self.question, width)}",
            f"Answer: {_answer(self.answer)} ({_counts(self)})",
            *([self.unfinished] if self.unfinished else []),
            "",
        ]
        if self.votes:
            lines.append(f"Votes ({self.rule}):" if self.rule else "Answers:")
        for vote in self.votes:
            voters = [_number(vote.candidates, "candidate")] if vote.candidates else []
            if vote.verifier:
                voters.append("the verifier" + (f" {vote.verifier} times" if vote.verifier > 1 else ""))
            weight = "" if vote.weight is None else f"  weight {vote.weight:.3g}"
            lines.append(f"  {_line(vote.answer, 40)}{weight}  by {' and '.join(voters)}")
        for number, candidates in enumerate(self.rounds):
            entry = next((entry for entry in self.trace if entry.get("round") == number), {})
            lines += [f"Round {number + 1}:", *(f"  {_candidate(c, width)}" for c in candidates)]
            texts = (entry.get("verifier") or {}).get("texts", ())
            lines += [f"  verifier:{_code(text) or f' {_line(text, width)}'}" for text in texts]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; floats that are not finite, which JSON cannot hold, become None."""
        content = {
            "question": self.question,
            "answer": self.answer,
            "text": self.text,
            "trace": self.trace,
            "prompt": self.prompt,
            "method": self.method,
            "rule": self.rule,
            "ended": self.ended,
            "candidates": [candidate.stored() for candidate in self.candidates],
            "votes": [asdict(vote) for vote in self.votes],
            "usage": {role: asdict(usage) for role, usage in self.usage.items()},
        }
        return json.loads(json.dumps(content), parse_constant=lambda _: None)

    def to_json(self, indent: int | None = None) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, allow_nan=False)

    def __repr__(self) -> str:
        return f"Solution({_answer(self.answer)!r}, {_counts(self)})"

    def _repr_html_(self) -> str:
        """Return the text and its explanation for a notebook."""
        shown = self.explain(width=math.inf)
        return f"<blockquote>{html.escape(self.text)}</blockquote><pre>{html.escape(shown)}</pre>"

    def _agrees(self, candidate: Candidate) -> bool:
        """Whether a candidate has the final answer, however a number is written."""
        return equal(candidate.answer, self.answer, "open")

    def _verifiers_text(self) -> str | None:
        """The verifier's last text with the final answer, if no candidate has that answer."""
        if self.answer is None or any(map(self._agrees, self.candidates)):
            return None
        for entry in reversed(self.trace):
            verdict = entry.get("verifier") or {}
            for answer, text in zip(verdict.get("answers", ()), verdict.get("texts", ()), strict=False):
                if answer == self.answer:
                    return str(text)
        return None


def solutions_of(jobs: Mapping[str, Job]) -> dict[str, Solution]:
    """Return the solutions of finished jobs, and warn of answers that a limit of tokens cut."""
    lost = [
        tokens_when_cut(candidate, job.problem.answer_type)
        for job in jobs.values()
        for candidate in job.result().candidates
    ]
    cut = [tokens for tokens in lost if tokens is not None]
    limits = {k for job in jobs.values() for k, v in vars(job.context.limits).items() if v is not None}
    if line := cut_warning(len(cut), len(lost), max(cut, default=0), sorted(limits)):
        log.warning(line)
    return {
        name: Solution.of(
            job.result(), job.problem, job.method.name, getattr(job.method, "final", None), job.context.grader
        )
        for name, job in jobs.items()
    }


def _candidate(candidate: Candidate, width: float) -> str:
    names = ("reward", "verified", "coherence")
    scores = [f"{name} {score:.3g}" for name in names if (score := getattr(candidate, name)) is not None]
    listed = f"({' '.join(scores)})" if scores else ""
    free = candidate.answer == candidate.text.strip()  # the answer is the text, which is shown once
    head = " ".join(part for part in ("" if free else _answer(candidate.answer), listed) if part)
    return f"{head}: {_line(candidate.text, width)}" if head else _line(candidate.text, width)


def _answer(answer: str | None) -> str:
    return "no answer" if answer is None else answer


def _counts(solution: Solution) -> str:
    parts = [solution.method] if solution.method else []
    parts.append(_number(len(solution.candidates), "candidate"))
    if solution.trace:
        parts.append(_number(len(solution.rounds), "round"))
    parts.append(_number(solution.generated_tokens, "token"))
    return ", ".join([*parts, *([solution.ended] if solution.ended else [])])


def _line(text: str, width: float) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: int(width) - 3]}..."


def _code(text: str) -> str:
    """A program with its outcome, which keeps its lines; "" for other texts."""
    if not text.startswith("```"):
        return ""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("```")]
    return "".join(f"\n    {line}" for line in lines)


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
