"""Grading a record: everything that metrics, tables and pages say about right and wrong.

A record is graded when it is written, and again only by ``soft-reasoning regrade`` or when a run resumes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from soft_reasoning.answers import MODES, AnswerGrader, Grader
from soft_reasoning.judge.final import FinalAnswer, SearchHistory, count_votes, lost_at, stored_verdicts
from soft_reasoning.lab.runs.records import (
    COVERAGE_AT,
    read_answers,
    stored_agreement,
    stored_candidates,
    stored_problem,
    written,
)
from soft_reasoning.types import Candidate, Usage, UserError, shortened

NEARLY_ALL = 0.8
"""Share of a question's candidates with one text at which the search has found nothing but this text."""


@dataclass(frozen=True)
class Graded:
    """A graded problem.

    Values that need a reference answer are None without it.

    Attributes:
        problem: ``doc_id``, ``answer``, ``correct``, ``covered`` (any candidate is right; a verifier's
            solutions do not count), ``covered_first`` (any of the first ``COVERAGE_AT``), ``parsed``, the
            number of different ``answers`` and of ``rounds``, ``one_text`` (the same text is at least
            ``NEARLY_ALL`` of the candidates; None for fewer than two), ``difficulty``, and ``wrong``: an item
            of ``metrics.WRONG_REASONS``.
        candidates: A row for each candidate: ``answer``, ``correct``, ``parsed``, ``round``, ``reward``,
            ``lost_at`` (tokens, if a limit cut it before its answer ended), ``approved`` (by the verifier,
            before its confidence), ``length`` |u|, ``new`` (no earlier
            candidate had its text), and ``expected``: the surrogate's mean at its point before its
            evaluation.
        readings: A row for each way of extracting answers.
        usage: Tokens by role.
        decided: For each round of proposals, the share that the acquisition function chose.
        after_rounds: For each round, what there would be if the search had ended after it: ``correct`` (None
            as well if the final rule is not known), the ``best_reward``, and the ``tokens`` generated,
            of which a verifier's count in equal parts for each round.
        verifier: For each entry of the trace, whether the verifier's answers are right.
        votes: The answers by descending weight: a ``rewards.final.Vote``, ``right``, and whether it was
            ``chosen``. Weights are None if the final rule is not known.
    """

    problem: Mapping[str, Any]
    candidates: Sequence[Mapping[str, Any]] = ()
    readings: Sequence[Mapping[str, Any]] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    decided: Sequence[float] = ()
    after_rounds: Sequence[Mapping[str, Any]] = ()
    verifier: Sequence[Sequence[bool | None]] = ()
    votes: Sequence[Mapping[str, Any]] = ()

    def outcome(self) -> dict[str, Any]:
        """Return what ``grades.json`` holds of the problem, by which pages mark right and wrong."""
        names = ("correct", "covered", "answer", "difficulty")
        return {
            **{name: self.problem[name] for name in names},
            "candidates": [[candidate["answer"], candidate["correct"]] for candidate in self.candidates],
            "verifier": self.verifier,
            "votes": self.votes,
        }


def grade(record: Mapping[str, Any], grader: AnswerGrader, final: FinalAnswer | None = None) -> Graded:
    """Grade the final answer and every candidate of a stored record.

    Args:
        record: The record.
        grader: Reads and compares answers.
        final: The run's final rule, if it is known.

    Raises:
        UserError: If the record lacks a field.
    """
    try:
        return _grade(record, grader, final)
    except KeyError as error:
        raise UserError(
            f"problem {shortened(str(record.get('doc_id')))}: its line in samples.jsonl was edited, it lacks "
            f"{error}; restore or delete that line, or start over with fresh=true"
        ) from error


def _grade(record: Mapping[str, Any], grader: AnswerGrader, final: FinalAnswer | None) -> Graded:
    problem, (answer, answers) = stored_problem(record), read_answers(record, grader)
    known: dict[str | None, bool | None] = {}

    def right(answer: str | None) -> bool | None:
        if answer not in known:
            known[answer] = grader.correct(answer, problem)
        return known[answer]

    correct, difficulty, trace = right(answer), problem.doc.get("difficulty"), record["trace"]
    candidates = _candidates(record, answers, right)
    approvals = [candidate["approved"] for candidate in candidates if candidate["correct"]]
    wrong = None
    if correct is False:
        reason = "rejected" if all(approved is False for approved in approvals) else "outvoted"
        wrong = reason if approvals else "uncovered"
    history = SearchHistory(stored_candidates(record), stored_verdicts(trace), grader, problem.answer_type)
    return Graded(
        problem={
            "doc_id": problem.id,
            "answer": answer,
            "correct": correct,
            "covered": bool(approvals),
            "covered_first": any(candidate["correct"] for candidate in candidates[:COVERAGE_AT]),
            "parsed": answer is not None,
            "answers": len({*answers} - {None}),
            "rounds": 1 + max((candidate["round"] for candidate in candidates), default=-1),
            "one_text": _one_text(written(record)[: len(candidates)]),
            "difficulty": None if difficulty is None else str(difficulty),
            "wrong": wrong,
        },
        candidates=candidates,
        readings=[_reading(record, mode_grader) for mode_grader in _graders_by_mode(grader)],
        usage={role: Usage(**counts) for role, counts in record["usage"].items()},
        decided=[p["decided"] for entry in trace if "decided" in (p := entry.get("proposal") or {})],
        after_rounds=list(_replay(record, grader, final)),
        verifier=[[right(a) for a in (entry.get("verifier") or {}).get("answers", ())] for entry in trace],
        votes=[
            {
                **asdict(vote),
                "right": right(vote.answer),
                "chosen": grader.equal(vote.answer, record["answer"], problem.answer_type),
            }
            for vote in count_votes(history, final)
        ],
    )


def _candidates(
    record: Mapping[str, Any],
    answers: Sequence[str | None],
    right: Callable[[str | None], bool | None],
) -> list[dict[str, Any]]:
    texts, proposals = written(record), [entry.get("proposal") or {} for entry in record["trace"]]
    means = [iter(proposal.get("mean", ())) for proposal in proposals]
    candidates = list[dict[str, Any]]()
    rows = zip(answers, record["candidates"], stored_candidates(record), strict=True)
    for i, (answer, stored, candidate) in enumerate(rows):
        number, agreement = stored["round"], stored_agreement(stored)
        row = {
            "answer": answer,
            "correct": right(answer),
            "parsed": answer is not None,
            "round": number,
            "reward": stored["reward"],
            "lost_at": lost_at(candidate, record["answer_type"]),
            "approved": None if agreement is None else agreement >= 0.5,
            "length": None if stored["u"] is None else math.hypot(*stored["u"]),
            "new": texts[i] not in texts[:i],
            "expected": next(means[number], None) if number < len(means) else None,
        }
        candidates.append(row)
    return candidates


def _one_text(texts: Sequence[str]) -> bool | None:
    """Whether nearly all ``texts`` are the same; None for fewer than two."""
    return max(Counter(texts).values()) >= NEARLY_ALL * len(texts) if len(texts) > 1 else None


def _graders_by_mode(grader: AnswerGrader) -> list[AnswerGrader]:
    """The package's grader in each mode, with the tolerances of ``grader``; then ``grader`` if custom."""
    base = grader if isinstance(grader, Grader) else Grader()
    graders: list[AnswerGrader] = [Grader(base.absolute, base.relative, mode, base.same) for mode in MODES]
    return graders if grader.name in MODES else [*graders, grader]


def _reading(record: Mapping[str, Any], grader: AnswerGrader) -> dict[str, Any]:
    problem, (answer, answers) = stored_problem(record), read_answers(record, grader)
    return {
        "mode": grader.name,
        "correct": grader.correct(answer, problem),
        "covered": None if problem.gold is None else any(grader.correct(a, problem) for a in answers),
        "parsed": answer is not None,
        "candidates": len(answers),
        "candidates_parsed": len(answers) - answers.count(None),
    }


def _replay(
    record: Mapping[str, Any], grader: AnswerGrader, final: FinalAnswer | None
) -> Iterator[dict[str, Any]]:
    """Yield what there would be if the search had ended after each of its rounds."""
    problem, stored, trace = stored_problem(record), record["candidates"], record["trace"]
    rounds = max((c["round"] for c in stored), default=0) + 1
    generated = {role: counts["generated_tokens"] for role, counts in record["usage"].items()}
    verifier_tokens = (sum(generated.values()) - generated.get("candidate", 0)) / rounds
    for number in range(1, rounds + 1):
        so_far = [c for c in stored if c["round"] < number]
        part = record if number == rounds else None  # the record of a run that ends here
        if part is None and final is not None:
            candidates = [
                Candidate(
                    "",
                    c["answer"],
                    c["round"],
                    reward=c["reward"] or 0.0,
                    finish_reason=c.get("finish_reason", ""),
                )
                for c in so_far
            ]
            texts, entries = [record["resps"][0][: len(so_far)]], trace[:number]
            history = SearchHistory(candidates, stored_verdicts(entries), grader, problem.answer_type)
            part = dict(record, answer=final.choose(history), candidates=so_far, resps=texts, trace=entries)
        yield {
            "correct": None if part is None else grader.correct(read_answers(part, grader)[0], problem),
            "best_reward": max((c["reward"] for c in so_far if c["reward"] is not None), default=None),
            "tokens": sum(c.get("generated_tokens") or 0 for c in so_far) + verifier_tokens * number,
        }


def final_rule(config: Mapping[str, Any]) -> FinalAnswer | None:
    """Return the rule of a run's final answers, if it is a :class:`FinalAnswer`; else None."""
    settings = (config.get("method") or {}).get("final") or {}
    if "rule" not in settings:  # a method without such a rule
        return None
    values = {key: value for key, value in settings.items() if key != "_target_" and value is not None}
    try:
        return FinalAnswer(**values)
    except (TypeError, UserError):  # another class, or a rule of another version
        return None
