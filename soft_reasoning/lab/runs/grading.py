"""Grading a record: everything that metrics, tables and pages say about correct and wrong answers.

A record is graded when it is written, and again only by ``soft-reasoning regrade`` or when a run resumes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from soft_reasoning.answers import MODES, AnswerGrader, Grader
from soft_reasoning.judge.final import FinalAnswer, SearchHistory, count_votes, lost_at, same_answers
from soft_reasoning.lab.runs.records import (
    COVERAGE_AT,
    AfterRound,
    CandidateGrade,
    Graded,
    ProblemGrade,
    Reading,
    Record,
    VoteGrade,
)
from soft_reasoning.thoughts import split
from soft_reasoning.types import Candidate, UserError

NEARLY_ALL = 0.8
"""Share of a question's candidates with one text at which the search has found nothing but this text."""

WRONG_REASONS = ("uncovered", "rejected", "outvoted")
"""Why final answers are wrong: no candidate is correct, the verifier approved no correct candidate, or it did
and another answer was chosen."""


def grade(record: Record, grader: AnswerGrader, final: FinalAnswer | None = None) -> Graded:
    """Grade the final answer and every candidate of a record.

    Args:
        record: The record.
        grader: Reads and compares answers.
        final: The run's final rule, if it is known.
    """
    problem, (answer, answers) = record.problem, read_answers(record, grader)
    known: dict[str | None, bool | None] = {}

    def right(answer: str | None) -> bool | None:
        if answer not in known:
            known[answer] = grader.correct(answer, problem)
        return known[answer]

    correct, difficulty = right(answer), problem.doc.get("difficulty")
    candidates = tuple(_candidates(record, answers, right))
    approvals = [candidate.approved for candidate in candidates if candidate.correct]
    wrong = None
    if correct is False:
        rejected = all(approved is False for approved in approvals)
        wrong = "uncovered" if not approvals else "rejected" if rejected else "outvoted"
    return Graded(
        id=problem.id,
        problem=ProblemGrade(
            answer=answer,
            correct=correct,
            covered=bool(approvals),
            covered_first=any(candidate.correct for candidate in candidates[:COVERAGE_AT]),
            answers=len(same_answers(answers, grader, problem.answer_type)),
            rounds=1 + max((candidate.round for candidate in candidates), default=-1),
            one_text=_one_text([candidate.written for candidate in record.result.candidates]),
            difficulty=None if difficulty is None else str(difficulty),
            wrong=wrong,
        ),
        candidates=candidates,
        readings=tuple(_reading(record, mode_grader) for mode_grader in _graders_by_mode(grader)),
        usage=record.result.usage,
        decided=tuple(traced.decided for traced in record.rounds if traced.decided is not None),
        tied=tuple(traced.tied for traced in record.rounds if traced.tied is not None),
        after_rounds=tuple(_replay(record, grader, final)),
        verifier=tuple(tuple(map(right, traced.verdict.answers)) for traced in record.rounds),
        votes=tuple(
            VoteGrade(
                **asdict(vote),
                right=right(vote.answer),
                chosen=grader.equal(vote.answer, record.result.answer, problem.answer_type),
            )
            for vote in count_votes(_history(record, record.result.candidates, grader), final)
        ),
    )


def read_answers(record: Record, grader: AnswerGrader) -> tuple[str | None, list[str | None]]:
    """Return the final answer and each candidate's answer, as ``grader`` reads them.

    With the run's extraction these are the stored answers. With another the stored texts are read again. The
    final answer is then the vote of the texts (candidates and verifier's solutions) that gave it, or of all
    texts if there was none. An answer that no stored text gave stays as it is, and so does a program's value.
    """
    problem, result = record.problem, record.result
    final, kind, stored = result.answer, problem.answer_type, [c.answer for c in result.candidates]
    if grader.name == record.extraction:
        return final, stored

    def read(candidate: Candidate) -> str | None:
        text = split(candidate.text, result.thinks)[1]
        return grader.extract(text, kind, problem.question, cut=candidate.cut)

    parsed = [c.answer if c.computed else read(c) for c in result.candidates]
    pairs = [*zip(stored, parsed, strict=True)]
    for verdict in (traced.verdict for traced in record.rounds):
        solutions = zip(verdict.answers, verdict.texts, strict=False)  # a judge has texts, but no answers
        pairs += [
            (a, a if verdict.computed else grader.extract(text, kind, problem.question))
            for a, text in solutions
        ]
    sources = [new for old, new in pairs if final is None or grader.equal(old, final, kind)]
    return (grader.vote(sources, kind) if sources else final), parsed


def _history(record: Record, candidates: Sequence[Candidate], grader: AnswerGrader) -> SearchHistory:
    verdicts = [traced.verdict for traced in record.rounds]
    return SearchHistory(candidates, verdicts, grader, record.problem.answer_type)


def _candidates(
    record: Record, answers: Sequence[str | None], right: Callable[[str | None], bool | None]
) -> Iterator[CandidateGrade]:
    means, seen = [iter(traced.mean) for traced in record.rounds], set[str]()
    for answer, candidate in zip(answers, record.result.candidates, strict=True):
        judged = candidate.judged
        yield CandidateGrade(
            answer=answer,
            correct=right(answer),
            round=candidate.round,
            reward=candidate.reward,
            lost_at=lost_at(candidate, record.problem.answer_type),
            approved=None if judged is None else judged >= 0.5,
            length=None if candidate.u is None else math.hypot(*candidate.u),
            new=candidate.written not in seen,
            expected=next(means[candidate.round], None) if candidate.round < len(means) else None,
        )
        seen.add(candidate.written)


def _one_text(texts: Sequence[str]) -> bool | None:
    """Whether nearly all ``texts`` are the same; None for fewer than two."""
    return max(Counter(texts).values()) >= NEARLY_ALL * len(texts) if len(texts) > 1 else None


def _graders_by_mode(grader: AnswerGrader) -> list[AnswerGrader]:
    """The package's grader in each mode, with the tolerances of ``grader``; then ``grader`` if custom."""
    base = grader if isinstance(grader, Grader) else Grader()
    graders: list[AnswerGrader] = [Grader(base.absolute, base.relative, mode, base.same) for mode in MODES]
    return graders if grader.name in MODES else [*graders, grader]


def _reading(record: Record, grader: AnswerGrader) -> Reading:
    problem, (answer, answers) = record.problem, read_answers(record, grader)
    return Reading(
        mode=grader.name,
        correct=grader.correct(answer, problem),
        covered=None if problem.gold is None else any(grader.correct(a, problem) for a in answers),
        parsed=answer is not None,
        candidates=len(answers),
        candidates_parsed=len(answers) - answers.count(None),
    )


def _replay(record: Record, grader: AnswerGrader, final: FinalAnswer | None) -> Iterator[AfterRound]:
    """Yield what there would be if the search had ended after each of its rounds."""
    rounds = max((candidate.round for candidate in record.result.candidates), default=0) + 1
    generated = {role: usage.generated_tokens for role, usage in record.result.usage.items()}
    verifier_tokens = (sum(generated.values()) - generated.get("candidate", 0)) / rounds
    for number in range(1, rounds + 1):
        part = record.until(number) if number < rounds else record
        candidates, known = part.result.candidates, number == rounds or final is not None
        if number < rounds and final is not None:
            rewarded = [replace(c, reward=c.reward or 0.0) for c in candidates]
            answer = final.choose(_history(part, rewarded, grader))
            part = replace(part, result=replace(part.result, answer=answer))
        yield AfterRound(
            correct=grader.correct(read_answers(part, grader)[0], record.problem) if known else None,
            best_reward=max((c.reward for c in candidates if c.reward is not None), default=None),
            tokens=sum(c.generated_tokens for c in candidates) + verifier_tokens * number,
        )


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
