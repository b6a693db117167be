"""Rounds of candidates: each round is verified and rewarded, and may be the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from soft_reasoning.answers import FREE
from soft_reasoning.judge.final import FinalAnswer, SearchHistory, lead_probability, same_answers
from soft_reasoning.judge.programs import ProgramVerifier
from soft_reasoning.judge.reward import Reward, rewards_of
from soft_reasoning.judge.verifier import NoVerifier, Verdict, Verifier, verify
from soft_reasoning.schedule.method import Context, Round, Steps
from soft_reasoning.search.stopping import Stopping
from soft_reasoning.types import Candidate, FinishReason, Problem, Result


@dataclass(frozen=True, kw_only=True)
class VerifiedMethod:
    """The parts of a method whose rounds are verified.

    Args:
        verifier: Scores the candidates of a round. It is asked only if the reward, the stopping rule or the
            final rule reads verdicts.
        reward: Combines score and coherence.
        stopping: Ends the rounds.
        final: Rule for the final answer.
    """

    verifier: Verifier = field(default_factory=ProgramVerifier)
    reward: Reward = field(default_factory=Reward)
    stopping: Stopping = field(default_factory=Stopping)
    final: FinalAnswer = field(default_factory=FinalAnswer)

    @property
    def active_verifier(self) -> Verifier:
        """The verifier, or none if nothing reads its verdicts; a user's parts are assumed to read them."""
        readers = self.reward, self.stopping, self.final
        read = any(getattr(part, "reads_verdicts", True) for part in readers)
        return self.verifier if read else NoVerifier()


class Rounds:
    """The rounds of one problem under a method's parts.

    Attributes:
        candidates: The candidates of all rounds, with their rewards.
        verdicts: A verdict per round.
        trace: A round's entry in the record, one per round.
    """

    def __init__(self, method: VerifiedMethod, problem: Problem, context: Context) -> None:
        self._method, self._problem, self._context = method, problem, context
        self.candidates: list[Candidate] = []
        self.verdicts: list[Verdict] = []
        self.trace: list[dict[str, Any]] = []

    @property
    def history(self) -> SearchHistory:
        """All candidates and verdicts so far."""
        return SearchHistory(self.candidates, self.verdicts, self._context.grader, self._problem.answer_type)

    def verify(self, candidates: Sequence[Candidate], **entries: object) -> Steps[None]:
        """Verify a round's candidates together, and add them as :meth:`add` does."""
        verifier, earlier = self._method.active_verifier, tuple(self.verdicts)
        verdict = yield from verify(verifier, self._problem, candidates, self._context, earlier)
        self.add(candidates, verdict, **entries)

    def add(self, candidates: Sequence[Candidate], verdict: Verdict, **entries: object) -> None:
        """Reward a round's candidates, whose coherence is known, and add them.

        ``entries`` are further fields of the round in the trace.
        """
        reward, parts = self._method.reward, ("answers", "weights", "texts", "prompts")
        rewarded = [
            replace(c, verified=score, agreement=agreed, reward=reward(score, c.coherence or 0.0))
            for c, score, agreed in zip(candidates, verdict.scores, verdict.agreement, strict=True)
        ]
        self.candidates += rewarded
        self.verdicts.append(verdict)
        verifier: dict[str, object] = {name: list(getattr(verdict, name)) for name in parts}
        verifier |= {"computed": True} if verdict.computed else {}
        entry = {"round": len(self.trace), "rewards": rewards_of(rewarded), "verifier": verifier}
        self.trace.append({**entry, **entries})

    def end(self) -> Steps[bool]:
        """Report the round, and return whether the rounds end: by stopping rule or budget.

        The trace holds the reason.
        """
        history, verdict, kind = self.history, self.verdicts[-1], self._problem.answer_type
        number = len(self.trace) - 1
        last = [c for c in self.candidates if c.round == number]
        groups = same_answers([c.answer for c in last], history.grader, kind)
        reason = self._method.stopping.reason(
            [entry["rewards"] for entry in self.trace],
            agreement=verdict.agreement,
            scores=verdict.scores,
            lead=None if kind in FREE else lead_probability(history.approval()),
            unanimous=kind not in FREE and [len(group) for group in groups] == [len(last)],
        )
        spent = yield Round(self._problem, number, last, self.trace[-1])
        if reason is None or reason == "rounds" and any(c.finish_reason == FinishReason.BUDGET for c in last):
            reason = spent or reason
        if reason is not None:
            self.trace[-1]["ended"] = reason
        return reason is not None

    def answer(self) -> str | None:
        """Return the final answer by the method's rule."""
        return self._method.final.choose(self.history)

    def result(self) -> Result:
        """Return the final answer with all candidates and the trace."""
        return Result(self.answer(), tuple(self.candidates), tuple(self.trace))
