"""Grading a record: everything that metrics, tables and pages say about correct and wrong answers.

A record is graded when it is written, and again only by ``soft-reasoning regrade`` or when a run resumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.judge.final import (
    FinalAnswer,
    SearchHistory,
    count_votes,
    same_answers,
    stored_verdicts,
    tokens_when_cut,
)
from soft_reasoning.lab.runs.files import Json
from soft_reasoning.lab.runs.records import Graded, Record
from soft_reasoning.thoughts import split
from soft_reasoning.types import Candidate, UserError


def grade(record: Record, grader: AnswerGrader, final: FinalAnswer | None = None) -> Graded:
    """Grade the final answer and every candidate of a record.

    Args:
        record: The record.
        grader: Reads and compares answers.
        final: The run's final rule, if it is known.
    """
    problem, result, kind = record.problem, record.result, record.problem.answer_type
    candidates, (answer, answers) = result.candidates, read_answers(record, grader)

    @cache
    def right(answer: str | None) -> bool | None:
        return grader.correct(answer, problem)

    rights = [right(a) for a in answers]
    written, difficulty = [c.written for c in candidates], problem.doc.get("difficulty")
    approved = [None if c.judged is None else c.judged >= 0.5 for c in candidates]
    proposals = [entry.get("proposal") or {} for entry in result.trace]
    verdicts = stored_verdicts(result.trace)
    votes = count_votes(SearchHistory(candidates, verdicts, grader, kind), final)
    return Graded(
        id=problem.id,
        answer=answer,
        correct=right(answer),
        covered=any(rights),
        difficulty=None if difficulty is None else str(difficulty),
        candidates=[*zip(answers, rights, strict=True)],
        verifier=[[right(a) for a in verdict.answers] for verdict in verdicts],
        votes=[
            asdict(v) | {"right": right(v.answer), "chosen": grader.equal(v.answer, result.answer, kind)}
            for v in votes
        ],
        answers=len(same_answers(answers, grader, kind)),
        round=[c.round for c in candidates],
        reward=[c.reward for c in candidates],
        cut_at=[tokens_when_cut(c, kind) for c in candidates],
        approved=approved,
        new=[text not in written[:i] for i, text in enumerate(written)],
        decided=[p["decided"] for p in proposals if p.get("decided") is not None],
        after_rounds=[*_after_rounds(record, grader, final)],
        usage={role: asdict(usage) for role, usage in result.usage.items()},
        question=problem.fingerprint,
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
    for verdict in stored_verdicts(result.trace):
        solutions = zip(verdict.answers, verdict.texts, strict=False)  # a judge has texts, but no answers
        pairs += [
            (a, a if verdict.computed else grader.extract(text, kind, problem.question))
            for a, text in solutions
        ]
    sources = [new for old, new in pairs if final is None or grader.equal(old, final, kind)]
    return (grader.vote(sources, kind) if sources else final), parsed


def _after_rounds(record: Record, grader: AnswerGrader, final: FinalAnswer | None) -> Iterator[Json]:
    """Yield what there would be if the search had ended after each of its rounds."""
    result, kind = record.result, record.problem.answer_type
    rounds = max((candidate.round for candidate in result.candidates), default=0) + 1
    generated = {role: usage.generated_tokens for role, usage in result.usage.items()}
    verifier_tokens = (sum(generated.values()) - generated.get("candidate", 0)) / rounds
    for number in range(1, rounds + 1):
        part, known = result, number == rounds or final is not None
        if number < rounds:
            candidates = [c for c in result.candidates if c.round < number]
            part = replace(result, candidates=tuple(candidates), trace=result.trace[:number])
            history = SearchHistory(candidates, stored_verdicts(part.trace), grader, kind)
            part = replace(part, answer=final.choose(history) if final is not None else None)
        answer = read_answers(replace(record, result=part), grader)[0] if known else None
        yield {
            "correct": grader.correct(answer, record.problem) if known else None,
            "best_reward": max((c.reward for c in part.candidates if c.reward is not None), default=None),
            "tokens": sum(c.generated_tokens for c in part.candidates) + verifier_tokens * number,
        }


def final_rule(config: Json) -> FinalAnswer | None:
    """Return the rule of a run's final answers, if it is a :class:`FinalAnswer`; else None."""
    settings = {**((config.get("method") or {}).get("final") or {})}
    settings.pop("_target_", None)
    try:
        return FinalAnswer(**settings) if "rule" in settings else None
    except (TypeError, UserError):  # another class, or a rule of another version
        return None
