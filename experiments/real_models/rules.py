"""Rules and judges of a recorded question's texts and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from experiments.real_models.recording import Answered, Recorded
from soft_reasoning.answers import Grader
from soft_reasoning.reports.statistics import paired_bootstrap
from soft_reasoning.rewards.history import same_answers
from soft_reasoning.search.stopping import settled

Outcomes: TypeAlias = Sequence[tuple[bool, int]]
"""For each question whether a rule's answer is right, and the tokens that it takes."""


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

    def settled(self, order: str, confidence: float) -> tuple[bool, int]:
        """Voters in ``order`` (t a text, p a program) until the leading answer is settled.

        As in ``method=mixed_consistency``, texts come before programs in a tie.
        """
        for count in range(1, len(order) + 1):
            leading, right, tokens = self.leading(order[:count])
            if leading >= confidence:
                break
        return right, tokens

    def leading(self, order: str) -> tuple[float, bool, int]:
        """How settled the leading answer of the voters in ``order`` is, whether it is right, and tokens."""
        texts = range(order.count("t"))
        programs = range(len(self.question.texts), len(self.question.texts) + order.count("p"))
        taken = [*texts, *programs]
        votes = Counter(self._groups[i] for i in taken if i in self._groups)
        tokens = sum(self._voters[i].tokens for i in taken)
        if not votes:
            return 0.0, False, tokens
        most = max(votes.values())
        first = next(i for i in taken if votes[self._groups.get(i, -1)] == most)
        return settled(list(votes.values())), self._voters[first].right, tokens

    @cached_property
    def _voters(self) -> Sequence[Answered]:
        return [*self.question.texts, *self.question.programs]

    @cached_property
    def _groups(self) -> dict[int, int]:
        """The answer, by number, of every text and program that has one."""
        answers = [voter.answer for voter in self._voters]
        groups = same_answers(answers, self.grader, self.question.kind)
        return {i: number for number, group in enumerate(groups) for i in group}

    def covered(self, texts: int) -> tuple[bool, int]:
        """Whether any of ``texts`` is right."""
        chosen = self.question.texts[:texts]
        return any(text.right for text in chosen), sum(text.tokens for text in chosen)

    def _right(self, answers: Sequence[str | None], weights: Sequence[float]) -> bool:
        answer = self.grader.vote(answers, self.question.kind, weights)
        return answer is not None and self.grader.equal(answer, self.question.gold, self.question.kind)


def others_agree(question: Recorded, i: int) -> float:
    """The share of the other texts with the answer of text ``i``."""
    same = Rules(question).same
    return float(np.mean([same(question.texts[i], x) for j, x in enumerate(question.texts) if j != i]))


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
    "share of the other texts that have its answer": others_agree,
    "share of the programs that have its answer": programs_agree,
    "texts + programs": lambda question, i: others_agree(question, i) + programs_agree(question, i),
    "texts + programs + 0.5 mean probability": together,
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
    """The name of the majority of ``count`` answers of a ``kind``, texts or programs."""
    if count == 1:
        return "one sampled text" if kind == "texts" else "one program (`program`)"
    method = "self_consistency" if kind == "texts" else "program_consistency"
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
    for confidence in (0.85, 0.95):
        name = f"texts until settled ({confidence})"
        results[name] = [rule.settled("t" * texts, confidence) for rule in rules]
    programs = min(len(question.programs) for question in questions)
    if programs:
        for confidence in (0.85, 0.95):
            name = f"programs, then texts until settled ({confidence}, `mixed_consistency`)"
            results[name] = [rule.settled("p" * programs + "t" * texts, confidence) for rule in rules]
        name = f"{texts} texts and {programs} programs vote, a program counts half"
        results[name] = [rule.vote(texts, programs, 0.5) for rule in rules]
        name = f"{texts} texts, each weighted by the programs (`verifier=program`)"
        results[name] = [rule.best(programs_agree, texts, programs) for rule in rules]
        name = f"{texts} texts, each weighted by texts + programs + 0.5 mean probability"
        results[name] = [rule.best(together, texts, programs) for rule in rules]
    for verifier in sorted(set.intersection(*(set(question.scores) for question in questions))):
        best = [rule.best(score_of(verifier), texts, 0) for rule in rules]
        spent = [question.verifier_tokens[verifier] for question in questions]
        name = f"{texts} texts, each weighted by `verifier={verifier}`"
        results[name] = [(right, tokens + more) for (right, tokens), more in zip(best, spent, strict=True)]
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
