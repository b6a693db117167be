"""What methods share: requests for solutions, candidates of completions, votes, rounds with a verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from soft_reasoning.answers import FREE
from soft_reasoning.checks import OptionError, real, whole
from soft_reasoning.engines.base import Engine
from soft_reasoning.engines.text import finish
from soft_reasoning.rewards.combine import Reward, rewards_of
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.judged import Judged, same_answers
from soft_reasoning.rewards.verifiers import Verdict, Verifier
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.search.stopping import Stopping
from soft_reasoning.types import Candidate, Completion, Generate, Problem, Request, Result, Round


def read_candidate(
    completion: Completion, problem: Problem, context: Context, round: int = 0, reward: Reward | None = None
) -> Candidate:
    """Return the candidate of ``completion``: its text, its parsed answer and its tokens.

    With a ``reward`` it has its coherence, too.
    """
    return Candidate(
        text=completion.text,
        answer=context.grader.extract(context.prompts.split(completion.text)[1], problem.answer_type),
        round=round,
        coherence=None if reward is None else reward.of_coherence(completion),
        generated_tokens=completion.generated_tokens,
        finish_reason=completion.finish_reason,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
    )


def _going_on(request: Request, begun: Completion, engine: Engine) -> Request | None:
    """Return the request for the rest of ``request``, which begins with ``begun``; None if that is all."""
    ids = request.prompt_ids + begun.token_ids
    left = request.max_new_tokens - begun.generated_tokens
    room = engine.context_length - begun.prompt_tokens - begun.generated_tokens
    if begun.generated_tokens and (begun.finish_reason != "length" or min(left, room) < 1):
        return None
    return replace(request, prompt_ids=ids, max_new_tokens=left)


def joined(
    begun: Completion, rest: Completion, stop: Sequence[str], engine: Engine, *, going_on: bool = False
) -> Completion:
    """Return the completion that ``begun`` and ``rest`` make up; a stop string may begin in the first.

    ``going_on`` says that ``begun`` is known not to have ended.
    """
    least = begun.generated_tokens if going_on else 0
    ids, logprobs = begun.token_ids + rest.token_ids, begun.logprobs + rest.logprobs
    tops = begun.top_logprobs[: begun.generated_tokens] + rest.top_logprobs
    count, text, reason = finish(
        engine.tokenizer, ids, stop=tuple(stop), eos=engine.eos_ids, min_new_tokens=least
    )
    reason = rest.finish_reason if reason == "length" else reason
    return replace(
        rest,
        token_ids=ids[:count],
        logprobs=logprobs[:count],
        text=text,
        finish_reason=reason,
        top_logprobs=tops[:count],
    )


def continued(
    requests: Sequence[Request], begun: Sequence[Completion], engine: Engine
) -> Steps[list[Completion]]:
    """Complete each of ``requests`` from what is ``begun`` of it; what is complete already stays as it is."""
    more = [_going_on(request, one, engine) for request, one in zip(requests, begun, strict=True)]
    rest = iter((yield Generate([request for request in more if request is not None])))
    return [
        one if request is None else joined(one, next(rest), request.stop, engine, going_on=True)
        for request, one in zip(more, begun, strict=True)
    ]


@dataclass(frozen=True)
class Verified:
    """The parts of a method whose rounds are verified.

    Args:
        verifier: Scores the candidates of a round.
        reward: Combines score and coherence.
        stopping: Ends the rounds.
        final: Rule for the final answer.
    """

    verifier: Verifier
    reward: Reward
    stopping: Stopping
    final: FinalAnswer


class Rounds:
    """The rounds of one problem under a method's parts: candidates ``seen``, ``verdicts`` and ``trace``."""

    def __init__(self, method: Verified, problem: Problem, context: Context) -> None:
        self._parts, self._problem, self._context = method, problem, context
        self.seen: list[Candidate] = []
        self.verdicts: list[Verdict] = []
        self.trace: list[dict[str, Any]] = []

    @property
    def judged(self) -> Judged:
        """All candidates and verdicts so far."""
        return Judged(self.seen, self.verdicts, self._context.grader, self._problem.answer_type)

    def verify(self, candidates: Sequence[Candidate], **more: Any) -> Steps[None]:
        """Verify a round's candidates together, and add them as :meth:`add` does."""
        verdict = yield from self._parts.verifier.verify(
            self._problem, candidates, self._context, tuple(self.verdicts)
        )
        self.add(candidates, verdict, **more)

    def add(self, candidates: Sequence[Candidate], verdict: Verdict, **more: Any) -> None:
        """Reward a round's candidates, whose coherence is known, and add them.

        ``more`` goes into the round's entry of the trace.
        """
        reward, parts = self._parts.reward, ("answers", "weights", "texts", "prompts")
        rewarded = [
            replace(c, verified=score, agreement=agreed, reward=reward(score, c.coherence or 0.0))
            for c, score, agreed in zip(candidates, verdict.scores, verdict.agreement, strict=True)
        ]
        self.seen += rewarded
        self.verdicts.append(verdict)
        said = {name: list(getattr(verdict, name)) for name in parts}
        entry = {"round": len(self.trace), "rewards": rewards_of(rewarded), "verifier": said}
        self.trace.append({**entry, **more})

    def end(self, otherwise: str | None = None) -> Steps[bool]:
        """Show the round to who watches; return whether the stopping rule or the problem's budget ends them.

        The trace holds the reason. ``otherwise`` is a reason of the method.
        """
        judged, verdict, kind = self.judged, self.verdicts[-1], self._problem.answer_type
        number = len(self.trace) - 1
        last = [c for c in self.seen if c.round == number]
        groups = same_answers([c.answer for c in last], judged.grader, kind)
        reason = self._parts.stopping.reason(
            [entry["rewards"] for entry in self.trace],
            agreement=verdict.agreement,
            scores=verdict.scores,
            votes=None if kind in FREE else judged.approval(),
            unanimous=kind not in FREE and [len(group) for group in groups] == [len(last)],
        )
        spent = yield Round(self._problem, number, last, self.trace[-1])
        reason = reason or otherwise or spent
        if reason is not None:
            self.trace[-1]["ended"] = reason
        return reason is not None

    def answer(self) -> str | None:
        """Return the final answer by the method's rule."""
        return self._parts.final.choose(self.judged)

    def result(self) -> Result:
        """Return the final answer with all candidates and the trace."""
        return Result(self.answer(), tuple(self.seen), tuple(self.trace))


def check_sampling(values: Any, prefix: str = "", *, fix: str = "method=cot is the greedy one") -> None:
    """Check the ``temperature``, ``top_k`` and ``top_p`` of ``values``; messages name them after ``prefix``.

    ``fix`` says how to correct a temperature of 0.

    Raises:
        OptionError: If nothing can be sampled with them.
    """
    if not hasattr(values, "temperature"):
        raise OptionError(
            prefix.strip("."), f"expected temperature, top_k and top_p, got {values!r:.40}; {fix}"
        )
    real(f"{prefix}temperature", values.temperature, above=0.0, fix=fix)
    whole(f"{prefix}top_k", values.top_k, least=0)
    real(f"{prefix}top_p", values.top_p, above=0.0, most=1.0)


def solution_request(
    problem: Problem, context: Context, max_new_tokens: int, *, index: int | None = None, **more: Any
) -> Request:
    """Return the request for a solution; ``more`` are fields of it.

    ``index`` counts a problem's sampled candidates over all rounds and gives each its random stream. Streams
    are the same for every method, so methods that sample alike draw the same solutions.
    """
    prompt = context.prompts.solve(problem)
    seed = 0 if index is None else context.stream(problem.id, "sample", index)
    most = prompt.most(max_new_tokens)
    return Request(prompt.ids, max_new_tokens=most, stop=prompt.stop, seed=seed, **more)


def voted(
    completions: Sequence[Completion], problem: Problem, context: Context, *trace: Mapping[str, Any]
) -> Result:
    """Return the majority vote: unparsed answers do not vote, and the earliest wins a tie."""
    candidates = tuple(read_candidate(completion, problem, context) for completion in completions)
    answer = context.grader.vote([c.answer for c in candidates], problem.answer_type)
    return Result(answer, candidates, trace)
