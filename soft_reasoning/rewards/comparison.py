"""A verifier that compares answers two by two.

Models judge which of two solutions is right better than one alone (pairwise self-verification, arXiv
2603.04304), and few pairs suffice (CAPS, arXiv 2605.15513): the distinct answers of a round meet in rounds of
a Swiss tournament, neighbours in the ranking first, each pair in both orders, until the leader cannot be
caught.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from soft_reasoning.checks import real, whole
from soft_reasoning.rewards.estimates import same_answers
from soft_reasoning.rewards.presentation import Together
from soft_reasoning.rewards.verifiers import ModelVerifier, Said, Verdict
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.types import Candidate, Problem

Wins = Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class Comparison:
    """Scores each answer by its strength against the other answers of its round and the best one before.

    An answer is shown by its most coherent candidate. The score is the probability that the answer beats one
    of average strength, in the Bradley-Terry model.

    Args:
        judge: Judges two candidates in one prompt.
        rounds: Rounds of the tournament; one needs log2 of the number of answers to find the best.
        prior: Wins and losses of each answer against an average one, before any comparison.

    Example:
        >>> Comparison(judge=ModelVerifier(confidence="sequence_prob"))
    """

    judge: ModelVerifier = field(default_factory=lambda: ModelVerifier(confidence="sequence_prob"))
    rounds: int = 3
    prior: float = 0.5
    name: str = "comparison"

    def __post_init__(self) -> None:
        whole("rounds", self.rounds, least=1)
        real("prior", self.prior, above=0.0)
        if not isinstance(self.judge.presentation, Together):
            raise ValueError("judge: expected one that is shown solutions together, got another presentation")

    def verify(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Steps[Verdict]:
        best = [verdict.leader for verdict in earlier[-1:] if verdict.leader is not None]
        everyone = [*candidates, *best]
        groups = same_answers([c.answer for c in everyone], context.grader, problem.answer_type)
        players = [max((everyone[i] for i in group), key=lambda c: c.coherence or 0.0) for group in groups]
        wins: dict[tuple[int, int], float] = {}
        heard: list[Said] = []
        strength = [0.0] * len(players)
        for number in range(self.rounds):
            pairs = _pairs(strength, wins)
            if not pairs or _decided(strength, wins, self.rounds - number):
                break
            both = [order for a, b in pairs for order in ((a, b), (b, a))]
            shown = [[players[a], players[b]] for a, b in both]
            said = yield from self.judge.ask(problem, shown, context, stage=f"round-{len(earlier)}-{number}")
            for (a, b), texts in zip(both, said, strict=True):
                won = self._won(texts, [players[a], players[b]], problem, context)
                for pair, share in (((a, b), won), ((b, a), 1 - won)):
                    wins[pair] = wins.get(pair, 0.0) + share / 2
                heard += texts
            strength = bradley_terry(len(players), wins, self.prior)
        scores = [0.0] * len(everyone)
        for group, value in zip(groups, strength, strict=True):
            for i in group:
                scores[i] = 1 / (1 + math.exp(-value))
        leader = players[max(range(len(players)), key=strength.__getitem__)] if players else None
        return Verdict(
            tuple(scores[: len(candidates)]), texts=tuple(one.completion.text for one in heard),
            prompts=tuple(one.prompt for one in heard), leader=leader,
        )  # fmt: skip

    def _won(
        self, texts: Sequence[Said], pair: Sequence[Candidate], problem: Problem, context: Context
    ) -> float:
        """The first one's share of a win, half where both or neither is called right."""
        margins = []
        for one in texts:
            first, second = self.judge.judgement.scores(one.text, pair, problem, context.grader)
            margins.append(one.weight * (first - second))
        return 0.5 + sum(margins) / (2 * len(margins))


def _pairs(strength: Sequence[float], wins: Wins) -> list[tuple[int, int]]:
    """Neighbours in the ranking that have not met, from the top; each is in one pair at most."""
    left = sorted(range(len(strength)), key=lambda i: -strength[i])
    pairs: list[tuple[int, int]] = []
    while left:
        first = left.pop(0)
        other = next((i for i in left if (first, i) not in wins), None)
        if other is not None:
            left.remove(other)
            pairs.append((first, other))
    return pairs


def _decided(strength: Sequence[float], wins: Wins, left: int) -> bool:
    """Whether nobody reaches the leader's points in the rounds that are ``left``."""
    points = [sum(won for (a, _), won in wins.items() if a == i) for i in range(len(strength))]
    first, second, *_ = [*sorted(points, reverse=True), -math.inf, -math.inf]
    return first - second > left


def bradley_terry(count: int, wins: Wins, prior: float, steps: int = 100) -> list[float]:
    """Return the strength (log) of each of ``count`` players: the mode of P(a beats b) = s_a / (s_a + s_b).

    ``wins`` holds a's (parts of) wins over b at (a, b). With ``prior`` wins and losses against a player of
    strength 1 the mode exists and is finite. Computed by Hunter's minorisation (Annals of Statistics 2004).
    """
    s = [1.0] * count
    for _ in range(steps):
        for i in range(count):
            won = prior + sum(share for (a, _), share in wins.items() if a == i)
            played = 2 * prior / (s[i] + 1.0) + sum(
                (share + wins.get((b, a), 0.0)) / (s[i] + s[b]) for (a, b), share in wins.items() if a == i
            )
            s[i] = won / played
    return [math.log(one) for one in s]
