"""Metrics of a run, computed from its records and a grader, so that a finished run can be graded again.

A ``Tally`` counts graded records into the numbers of ``results.json``. Its memory does not grow with the
number of problems.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from soft_reasoning.answers import MODES
from soft_reasoning.runs.records import FIRST, MEMORY, Extraction, Graded, GradedCandidate, Outcome, ease
from soft_reasoning.types import Usage, UserError

WHY = ("uncovered", "rejected", "outvoted")
"""Why final answers are wrong: no candidate is right, the verifier approved of no right one, or it did and
another answer was chosen."""


class Tally:
    """The metrics of a run, counted problem by problem.

    The order of problems changes no digit. Only the outcome of each problem is kept, by id.
    """

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.problems: int = 0
        self._correct: Counter[bool] = Counter()
        self._covered: Counter[bool] = Counter()
        self._covered_first: Counter[bool] = Counter()
        self._parsed: Counter[bool] = Counter()
        self._candidates_correct: Counter[bool | None] = Counter()
        self._candidates_parsed: Counter[bool] = Counter()
        self._right_of: Counter[tuple[int, int]] = Counter()  # (right ones, all) of the first round
        self._first_right: Counter[int] = Counter()  # round of the first right candidate
        self._extractions = {mode: _Extractions() for mode in MODES}
        self._ended: Counter[int] = Counter()
        self._rounds: dict[int, _Round] = {}
        self._levels: dict[str, tuple[Counter[bool], Counter[bool]]] = {}  # correct, covered
        self._verdicts: Counter[tuple[bool, bool | None]] = Counter()  # (judged right, is right)
        self._wrong: Counter[str] = Counter()
        self._hopeless: Counter[bool] = Counter()  # rounds without a right candidate: was one approved?
        self._usage: dict[str, Usage] = {}
        self._decided = _Mean()
        self._texts, self._answers = _Mean(), _Mean()
        self._ranked = {"all": _Mean(), "new": _Mean()}

    def add(self, row: Graded) -> None:
        """Count one more problem."""
        self.problems += 1
        self.outcomes[row.doc_id] = row.outcome
        self._parsed[row.parsed] += 1
        self._ended[row.rounds] += 1
        for candidate in row.candidates:
            self._candidates_parsed[candidate.parsed] += 1
        for name, extraction in row.extractions.items():
            self._extractions.setdefault(name, _Extractions()).add(extraction)
        for role, usage in row.usage.items():
            self._usage[role] = self._usage.get(role, Usage()) + usage
        for share in row.decided:
            self._decided.add(share)
        self._texts.add(sum(c.new for c in row.candidates))
        self._answers.add(row.answers)
        for number in {c.round for c in row.candidates}:
            self._rounds.setdefault(number, _Round()).add([c for c in row.candidates if c.round == number])
        if row.correct is not None:
            self._grade(row, row.correct)

    def _grade(self, row: Graded, correct: bool) -> None:
        self._correct[correct] += 1
        self._covered[row.covered()] += 1
        self._covered_first[row.covered(FIRST)] += 1
        right = [c.round for c in row.candidates if c.correct]
        self._right_of[right.count(0), sum(c.round == 0 for c in row.candidates)] += 1
        if right:
            self._first_right[min(right)] += 1
        for candidate in row.candidates:
            self._candidates_correct[candidate.correct] += 1
            if candidate.round == 0 and candidate.approved is not None:
                self._verdicts[candidate.approved, candidate.correct] += 1
        if not correct:
            self._wrong[_why(row)] += 1
        approved = {c.round for c in row.candidates if c.approved}
        for number in {c.round for c in row.candidates if c.approved is not None}.difference(right):
            self._hopeless[number in approved] += 1
        for one, other, won in _compared(row.candidates):
            self._ranked["all"].add(won)
            if one.new and other.new:
                self._ranked["new"].add(won)
        if row.difficulty is not None:
            level = self._levels.setdefault(row.difficulty, (Counter(), Counter()))
            level[0][correct] += 1
            level[1][row.covered()] += 1

    def metrics(
        self,
        *,
        seconds: Mapping[str, float] | None = None,
        peaks: Mapping[str, int] | None = None,
        means: Mapping[str, float] | None = None,
        rate: Mapping[str, int] | None = None,
        independent: bool = False,
    ) -> dict[str, Any]:
        """Return plain values, with ``_stderr`` beside each share; None where undefined.

        Args:
            seconds: Seconds by kind. ``engine`` is the time spent waiting for the engine, ``idle`` all
                other time, an upper bound: an engine in its own process (vLLM on a GPU) works on while
                nobody waits.
            peaks: Most bytes of memory by kind.
            means: Mean bytes of memory by kind, over samples taken once a second.
            rate: Operations per position and key (``flops.rates``).
            independent: Whether the first round's candidates are i.i.d. samples, as pass@m requires.
        """
        usage = {role: self._usage[role] for role in sorted(self._usage)}
        usage["total"] = sum(usage.values(), Usage())
        seconds = dict(seconds or {})
        if "total" in seconds:
            seconds["idle"] = max(0.0, seconds["total"] - seconds.get("engine", 0.0))
        candidates, graded = sum(self._candidates_parsed.values()), self._correct.total()
        return {
            "problems": self.problems,
            **_share("exact_match", self._correct),
            **_share("coverage", self._covered),
            **_share(f"coverage@{FIRST}", self._covered_first),
            **(self._pass() if independent else {}),
            "unparsed": _part(self._parsed, False),
            "candidates": candidates / self.problems if self.problems else None,
            "texts": self._texts.value,
            "answers": self._answers.value,
            "candidate_accuracy": _part(self._candidates_correct, True),
            "candidate_unparsed": _part(self._candidates_parsed, False),
            "extraction": {mode: extractions.metrics() for mode, extractions in self._extractions.items()},
            "rounds": {
                "mean": sum(n * c for n, c in self._ended.items()) / self.problems if self.problems else None,
                "share_ended_after": {str(n): self._ended[n] / self.problems for n in sorted(self._ended)},
            },
            "by_round": self._by_round(),
            "decided": self._decided.value,
            "auc": {which: ranked.value for which, ranked in self._ranked.items()},
            "by_difficulty": self._by_difficulty(),
            "verifier": self._verifier(),
            "wrong": {why: self._wrong[why] / graded if graded else None for why in WHY},
            "tokens": _tokens(usage),
            "flops": None if rate is None else {role: flops(counts, rate) for role, counts in usage.items()},
            "seconds": seconds,
            "peak_bytes": {kind: (peaks or {}).get(kind) for kind in MEMORY},
            "mean_bytes": {kind: (means or {}).get(kind) for kind in MEMORY},
        }

    def _pass(self) -> dict[str, float | None]:
        """pass@m for m = 1, 2, 4, ..., ``FIRST`` and the largest number of samples that every problem has.

        Only the first round counts: whether others follow depends on it, which would bias the estimate.
        """
        least = min((count for _, count in self._right_of), default=0)
        sizes = {m for m in (*(2**i for i in range(least.bit_length())), FIRST, least) if 1 <= m <= least}
        out: dict[str, float | None] = {}
        for m in sorted(sizes):
            chances: Counter[float] = Counter()
            for (right, count), problems in self._right_of.items():
                chances[pass_at(count, right, m)] += problems
            out |= _share(f"pass@{m}", chances)
        return out

    def _by_round(self) -> list[dict[str, Any]]:
        """For each round: accuracy and rewards of its candidates, and coverage of all rounds up to it.

        Accuracy, rewards and lengths |u| are over the problems still searching in that round. Coverage is
        over all.
        """
        graded = self._correct.total()
        out = []
        for number in range(max(self._ended, default=0)):
            here = self._rounds.get(number, _Round())
            sofar = sum(count for first, count in self._first_right.items() if first <= number)
            out.append(
                {
                    "round": number,
                    "problems": here.problems,
                    "accuracy": _part(here.correct, True),
                    "coverage": sofar / graded if graded else None,
                    "reward": here.reward.value,
                    "best_reward": here.best.value,
                    "length": here.length.value,
                }
            )
        return out

    def _by_difficulty(self) -> dict[str, Any]:
        return {
            level: {
                "problems": self._levels[level][0].total(),
                **_share("exact_match", self._levels[level][0]),
                **_share("coverage", self._levels[level][1]),
            }
            for level in sorted(self._levels, key=ease)
        }

    def _verifier(self) -> dict[str, Any] | None:
        """Compare the verifier with gold over the first round's candidates, which every problem has.

        ``approved_where_none_is_right`` is over all rounds: how often the verifier calls a candidate right
        in a round without a right one.
        """
        if not self._verdicts:
            return None
        said: dict[bool, Counter[bool]] = {True: Counter(), False: Counter()}  # by truth
        for (verdict, right), count in self._verdicts.items():
            said[bool(right)][verdict] += count
        of_right, of_wrong = _part(said[True], True), _part(said[False], False)
        total = self._verdicts.total()
        return {
            "accuracy": (said[True][True] + said[False][False]) / total,
            "base_rate": said[True].total() / total,
            "sensitivity": of_right,
            "specificity": of_wrong,
            "balanced_accuracy": None if of_right is None or of_wrong is None else (of_right + of_wrong) / 2,
            "approved_where_none_is_right": _part(self._hopeless, True),
        }


def _why(row: Graded) -> str:
    """Say in a word of ``WHY`` why a final answer is wrong."""
    right = [candidate.approved for candidate in row.candidates if candidate.correct]
    if not right:
        return "uncovered"
    return "outvoted" if any(approved is not False for approved in right) else "rejected"


def _compared(
    candidates: Sequence[GradedCandidate],
) -> Iterator[tuple[GradedCandidate, GradedCandidate, float]]:
    """Each right candidate, a wrong one of its round, and whether more was expected of it; 0.5 for a tie."""
    known = [(c, c.expected) for c in candidates if c.expected is not None]
    for one, high in known:
        for other, low in known:
            if one.correct and other.correct is False and one.round == other.round:
                yield one, other, (high > low) + 0.5 * (high == low)


class _Mean:
    """A mean of floats; the sum is exact, so their order does not matter. None if one is infinite."""

    def __init__(self) -> None:
        self.count, self.total = 0, Fraction(0)
        self.finite: bool = True

    def add(self, value: float) -> None:
        self.count += 1
        if math.isfinite(value):
            self.total += Fraction(value)
        else:
            self.finite = False

    @property
    def value(self) -> float | None:
        return float(self.total / self.count) if self.count and self.finite else None


class _Round:
    """All problems' candidates of one round."""

    def __init__(self) -> None:
        self.problems: int = 0
        self.correct: Counter[bool | None] = Counter()
        self.reward, self.best, self.length = _Mean(), _Mean(), _Mean()

    def add(self, candidates: Sequence[GradedCandidate]) -> None:
        self.problems += 1
        self.correct.update(c.correct for c in candidates)
        for candidate in candidates:
            if candidate.length is not None:
                self.length.add(candidate.length)
        rewards = [c.reward for c in candidates if c.reward is not None]
        for reward in rewards:
            self.reward.add(reward)
        if rewards:
            self.best.add(max(rewards))


class _Extractions:
    """All problems under one extraction."""

    def __init__(self) -> None:
        self.correct: Counter[bool | None] = Counter()
        self.covered: Counter[bool | None] = Counter()
        self.parsed: Counter[bool] = Counter()
        self.candidates_parsed: Counter[bool] = Counter()

    def add(self, extraction: Extraction) -> None:
        self.correct[extraction.correct] += 1
        self.covered[extraction.covered] += 1
        self.parsed[extraction.parsed] += 1
        self.candidates_parsed.update(extraction.candidates_parsed)

    def metrics(self) -> dict[str, float | None]:
        return {
            **_share("exact_match", self.correct),
            **_share("coverage", self.covered),
            "unparsed": _part(self.parsed, False),
            "candidate_unparsed": _part(self.candidates_parsed, False),
        }


def _share(name: str, counts: Counter[Any]) -> dict[str, float | None]:
    """Mean and standard error of the counted values, without None."""
    values = [float(v) for v, count in counts.items() if v is not None for _ in range(count)]
    mean, stderr = mean_stderr(values)
    return {name: _known(mean), f"{name}_stderr": _known(stderr)}


def _part(counts: Counter[Any], which: bool) -> float | None:
    """The share of ``which`` among the known values."""
    known = counts[True] + counts[False]
    return counts[which] / known if known else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _tokens(by_role: Mapping[str, Usage]) -> dict[str, dict[str, int]]:
    return {
        role: {
            "prompt": usage.prompt_tokens,
            "cached": usage.cached_tokens,
            "generated": usage.generated_tokens,
            "sequences": usage.sequences,
        }
        for role, usage in by_role.items()
    }


def equal_samples(tried: Mapping[str, Any], samples: int, reference: Mapping[str, Any]) -> int:
    """Return the number of samples (at least 1) that generates as many tokens per problem as ``reference``.

    Args:
        tried: Metrics, as in ``results.json``, of a run with ``samples`` samples. Tokens, including a
            verifier's, are assumed to grow in proportion to samples.
        samples: The samples of that run.
        reference: Metrics of the reference.

    Raises:
        UserError: If the samples had no tokens.
    """
    spent, wanted = (
        metrics["tokens"]["total"]["generated"] / metrics["problems"] for metrics in (tried, reference)
    )
    if spent == 0:
        raise UserError("budget=equal: expected samples that hold tokens, got empty ones; use budget=own")
    return max(1, round(samples * wanted / spent))


def flops(usage: Usage, rate: Mapping[str, int]) -> int:
    """Return an estimate of the floating-point operations of ``usage`` at ``rate`` (``manifest.rates``).

    It is too high in four ways: every position counts the output layer, which a prompt needs once; every
    layer counts as full attention; the last token of a completion counts as if it were fed back; and a
    recomputed position counts as if it attended to the whole prompt.
    """
    positions = usage.prompt_tokens - usage.cached_tokens + usage.generated_tokens + usage.recomputed_tokens
    return rate["position"] * positions + rate["key"] * usage.attended


def pass_at(n: int, correct: int, m: int) -> float:
    """Return the chance that ``m`` of ``n`` i.i.d. samples, ``correct`` of them right, include a right one.

    1 - C(n - c, m) / C(n, m), unbiased (Chen et al. 2021).

    Raises:
        ValueError: Unless 1 <= m <= n.
    """
    if not 1 <= m <= n or not 0 <= correct <= n:
        raise ValueError(f"expected 1 <= m <= n and 0 <= correct <= n, got m={m}, n={n}, correct={correct}")
    return 1.0 - math.comb(n - correct, m) / math.comb(n, m)


def mean_stderr(values: Sequence[float]) -> tuple[float, float]:
    """Return (mean, standard error) of ``values`` (n,): sample standard deviation over sqrt(n).

    For 0/1 values the latter is sqrt(p (1 - p) / (n - 1)), as in lm-evaluation-harness. NaN where
    undefined: the mean of no values, the error of one.
    """
    n = len(values)
    if n == 0:
        return math.nan, math.nan
    mean = math.fsum(values) / n
    if n == 1:
        return mean, math.nan
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
