"""Rules and judges of a recorded question's texts and programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from experiments.real_models.recording import Answered, Recorded
from soft_reasoning.answers import Grader
from soft_reasoning.judge.final import FinalAnswer, SearchHistory, lead_probability
from soft_reasoning.judge.reward import Reward
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.lab.reports.statistics import paired_bootstrap
from soft_reasoning.method.mixed_consistency import MixedConsistency
from soft_reasoning.types import Candidate

Scores: TypeAlias = Sequence[Sequence[float]]
"""The scores of a judge for the first text, for the first two, and so on; none for equal votes."""
Outcomes: TypeAlias = Sequence[tuple[bool, int]]
"""For each question whether a rule's answer is right, and the tokens that it takes."""

MIXED = "programs, then samples until settled ({}, `mixed_consistency`)"
JUDGED = "{} samples, `verified_sampling verifier={}`"
REWARD, FINAL = Reward(), FinalAnswer("weighted_vote")


@dataclass
class Rules:
    """Rules of one question, each with the answer that it gives and the tokens that it takes."""

    question: Recorded
    grader: Grader = field(default_factory=Grader)

    def same(self, a: Answered, b: Answered) -> bool:
        return a.answer is not None and self.grader.equal(a.answer, b.answer, self.question.kind)

    def vote(self, texts: int, programs: int = 0, weight: float = 1.0) -> tuple[bool, int]:
        """The majority of ``texts`` and ``programs``, a program counting ``weight``; whether it is right."""
        voters = [*self.question.texts[:texts], *self.question.programs[:programs]]
        weights = [1.0] * texts + [weight] * programs
        return self._right([voter.answer for voter in voters], weights), sum(voter.tokens for voter in voters)

    def best(self, judge: Callable[[Recorded, int], float], texts: int, programs: int) -> tuple[bool, int]:
        """The answers of ``texts``, each weighted by its score; whether the best is right."""
        chosen = self.question.texts[:texts]
        scores = [max(judge(self.question, i), 1e-9) for i in range(len(chosen))]
        tokens = sum(text.tokens for text in [*chosen, *self.question.programs[:programs]])
        return self._right([text.answer for text in chosen], scores), tokens

    def judged(
        self, scores: Sequence[float | None], programs: int = 0, final: FinalAnswer = FINAL
    ) -> tuple[bool, int]:
        """The answer of ``method=verified_sampling`` after one round, with the verifier's ``scores``.

        The answers of ``programs`` vote, too. The geometric mean of the tokens' probabilities stands for
        their arithmetic mean, which is not recorded.
        """
        question, texts = self.question, self.question.texts[: len(scores)]
        candidates = [
            Candidate("", text.answer, 0, verified=score, reward=REWARD(score, probability(question, i)))
            for i, (text, score) in enumerate(zip(texts, scores, strict=True))
        ]
        voters = question.programs[:programs]
        answers = tuple(program.answer for program in voters)
        verdict = Verdict(tuple(scores), answers, ("",) * len(voters), (1.0,) * len(voters))
        answer = final.choose(SearchHistory(candidates, [verdict], self.grader, question.kind))
        return self._is_right(answer), sum(voter.tokens for voter in [*texts, *voters])

    def mixed(
        self, texts: int, programs: int, method: MixedConsistency, scores: Scores = ()
    ) -> tuple[bool, int]:
        """The answer of ``method``: programs, then texts until the vote is settled."""
        count = 0 if method.confidence < 1 else texts
        while count < texts and self.settled(count, programs, method, scores) < method.confidence:
            count = min(texts, count + method.wave)
        return self.voted(count, programs, method, scores)

    def settled(self, texts: int, programs: int, method: MixedConsistency, scores: Scores = ()) -> float:
        """How sure it is that the leading answer of ``texts`` and ``programs`` stays ahead."""
        return lead_probability(self._votes(texts, programs, method, scores)[1])

    def voted(
        self, texts: int, programs: int, method: MixedConsistency, scores: Scores = ()
    ) -> tuple[bool, int]:
        """The answer of ``method`` after ``texts`` and ``programs``."""
        voters = [*self.question.texts[:texts], *self.question.programs[:programs]]
        weights = self._votes(texts, programs, method, scores)[0]
        return self._right([v.answer for v in voters], weights), sum(voter.tokens for voter in voters)

    def _votes(
        self, texts: int, programs: int, method: MixedConsistency, scores: Scores
    ) -> tuple[Sequence[float], Sequence[float]]:
        solutions, computed = self.question.texts[:texts], self.question.programs[:programs]
        answers = [s.answer for s in solutions], [p.answer for p in computed]
        weights = scores[texts - 1][:texts] if texts and scores else ()
        return method.votes(*answers, self.grader, self.question.kind, weights)

    def covered(self, texts: int) -> tuple[bool, int]:
        """Whether any of ``texts`` is right."""
        chosen = self.question.texts[:texts]
        return any(text.right for text in chosen), sum(text.tokens for text in chosen)

    def _right(self, answers: Sequence[str | None], weights: Sequence[float]) -> bool:
        return self._is_right(self.grader.vote(answers, self.question.kind, weights))

    def _is_right(self, answer: str | None) -> bool:
        return answer is not None and self.grader.equal(answer, self.question.gold, self.question.kind)


def others_agree(question: Recorded, i: int) -> float:
    """The share of the other texts with the answer of text ``i``."""
    same = Rules(question).same
    return float(np.mean([same(question.texts[i], x) for j, x in enumerate(question.texts) if j != i]))


def program_scores(question: Recorded, texts: int) -> list[float | None]:
    """The scores of ``verifier=program``; None if no program gave an answer."""
    ran = any(program.answer is not None for program in question.programs)
    return [programs_agree(question, i) if ran else None for i in range(texts)]


def programs_agree(question: Recorded, i: int) -> float:
    """The share of the programs that gave an answer and agree with text ``i``; 0 if none did."""
    ran = [program for program in question.programs if program.answer is not None]
    return sum(Rules(question).same(question.texts[i], program) for program in ran) / max(len(ran), 1)


def probability(question: Recorded, i: int) -> float:
    """The geometric mean probability of the tokens of text ``i``."""
    return float(np.exp(question.texts[i].logprob))


def together(question: Recorded, i: int) -> float:
    """Agreement of texts and programs, and half the mean probability."""
    return others_agree(question, i) + programs_agree(question, i) + 0.5 * probability(question, i)


JUDGES = {
    "mean probability of its tokens": probability,
    "share of the other samples that have its answer": others_agree,
    "share of the programs that have its answer": programs_agree,
    "samples + programs": lambda question, i: others_agree(question, i) + programs_agree(question, i),
    "samples + programs + 0.5 mean probability": together,
}


def score_of(name: str) -> Callable[[Recorded, int], float]:
    """The verifier ``name`` as a judge."""
    return lambda question, i: question.scores[name][i]


def judges(questions: Sequence[Recorded]) -> dict[str, Callable[[Recorded, int], float]]:
    """All judges of a recording: those of its texts and programs, and the verifiers that scored all texts."""
    names = set.intersection(*(set(question.scores) for question in questions))
    return JUDGES | {f"`verifier={name}`": score_of(name) for name in sorted(names)}


def within_question_auc(questions: Sequence[Recorded], scores: Sequence[Sequence[float]]) -> list[float]:
    """The AUC of the texts' scores, for each question with right and wrong texts."""
    values: list[float] = []
    for question, given in zip(questions, scores, strict=True):
        judged = list(zip(question.texts, given, strict=False))
        right = [score for text, score in judged if text.right]
        wrong = [score for text, score in judged if not text.right]
        if right and wrong:
            values.append(float(np.mean([(a > b) + 0.5 * (a == b) for a in right for b in wrong])))
    return values


def greedy(questions: Sequence[Recorded]) -> Outcomes:
    """The greedy text."""
    return [(question.greedy.right, question.greedy.tokens) for question in questions]


def majority(count: int, kind: str) -> str:
    """The name of the majority of ``count`` answers of a ``kind``, samples or programs."""
    if count == 1:
        return "one sample" if kind == "samples" else "one program (`program`)"
    method = "self_consistency" if kind == "samples" else "program_consistency"
    return f"majority of {count} {kind} (`{method}`)"


def majorities(questions: Sequence[Recorded]) -> tuple[dict[int, Outcomes], dict[int, Outcomes]]:
    """The majority of the first n texts, and of the first n programs, for every n that all questions have."""
    rules = [
        Rules(replace(q, texts=[*q.texts, *q.further_texts], programs=[*q.programs, *q.further_programs]))
        for q in questions
    ]
    texts = min(len(rule.question.texts) for rule in rules)
    programs = min(len(rule.question.programs) for rule in rules)
    return (
        {n: [rule.vote(n) for rule in rules] for n in range(1, texts + 1)},
        {n: [rule.vote(0, n) for rule in rules] for n in range(1, programs + 1)},
    )


def mixtures(questions: Sequence[Recorded], texts: int) -> dict[str, Outcomes]:
    """The rules that are no majority of one kind of text, by name."""
    rules = [Rules(question) for question in questions]
    results: dict[str, Outcomes] = {}
    methods = {confidence: MixedConsistency(confidence=confidence) for confidence in (0.85, 0.95)}
    for confidence, method in methods.items():
        name = f"samples until settled ({confidence})"
        results[name] = [rule.mixed(texts, 0, replace(method, wave=1)) for rule in rules]
    programs = min(len(question.programs) for question in questions)
    if programs:
        for confidence, method in methods.items():
            results[MIXED.format(confidence)] = [rule.mixed(texts, programs, method) for rule in rules]
        half = MixedConsistency(confidence=1.0, program_weight=0.5)
        name = f"{texts} samples and {programs} programs vote, a program counts half"
        results[name] = [rule.mixed(texts, programs, half) for rule in rules]
        results[JUDGED.format(texts, "program")] = [
            rule.judged(program_scores(rule.question, texts), programs) for rule in rules
        ]
    for verifier in sorted(set.intersection(*(set(question.scores) for question in questions))):
        judged = [rule.judged(rule.question.scores[verifier][:texts]) for rule in rules]
        spent = [question.verifier_tokens[verifier] for question in questions]
        results[JUDGED.format(texts, verifier)] = [
            (right, tokens + more) for (right, tokens), more in zip(judged, spent, strict=True)
        ]
    return results


def searches(questions: Sequence[Recorded]) -> dict[str, Outcomes]:
    """The answers of the runs on all questions, by the run's name."""
    runs = set.intersection(*(set(question.answers) for question in questions))
    return {
        run: [(question.answers[run].right, question.answers[run].tokens) for question in questions]
        for run in sorted(runs)
    }


def coverage(questions: Sequence[Recorded], texts: int) -> Outcomes:
    """Whether any of the first ``texts`` is right: a perfect judge."""
    return [Rules(question).covered(texts) for question in questions]


def accuracy(outcomes: Outcomes) -> float:
    """The share of right answers in %."""
    return 100 * sum(right for right, _ in outcomes) / len(outcomes)


def tokens(outcomes: Outcomes) -> float:
    """The mean tokens of a question."""
    return float(np.mean([spent for _, spent in outcomes]))


def tokens_per_right(outcomes: Outcomes) -> float:
    """The tokens of all questions for each right answer."""
    return 100 * tokens(outcomes) / max(accuracy(outcomes), 1e-9)


def hits(outcomes: Outcomes) -> list[float]:
    """1 for each question that is right, else 0."""
    return [float(right) for right, _ in outcomes]


def minus(right: Sequence[float], other: Sequence[float]) -> str:
    """The paired difference in points, with its 95 % interval."""
    interval = paired_bootstrap(right, other)
    return f"{100 * interval.difference:+.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"
