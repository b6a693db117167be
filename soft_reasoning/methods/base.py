"""What methods share: candidates of completions, rounds with a verifier, sampled requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from soft_reasoning.answers import FREE, AnswerGrader
from soft_reasoning.checks import OptionError, real, whole
from soft_reasoning.engines.base import Engine
from soft_reasoning.engines.text import finish
from soft_reasoning.rewards.coherence import tokens_of
from soft_reasoning.rewards.combine import Reward, rewards_of
from soft_reasoning.rewards.estimates import estimates, pooled_scores, same_answers
from soft_reasoning.rewards.verifiers import Verdict, Verifier
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.search.stopping import Stopping
from soft_reasoning.types import (
    Candidate,
    Completion,
    Problem,
    Request,
    Round,
    Sampling,
)


def read_candidate(
    completion: Completion, problem: Problem, context: Context, round: int = 0, reward: Reward | None = None
) -> Candidate:
    """Return the candidate of ``completion``: its text, its parsed answer and its tokens.

    With a ``reward`` it has its coherence, too.
    """
    coherence = None
    if reward is not None:
        located = getattr(reward, "coherence", "") == "answer_prob"
        span = context.grader.locate(completion.text, problem.answer_type) if located else None
        where = (tokens_of(span, completion, context.engine.tokenizer),) if span else ()
        coherence = reward.of_coherence(completion, *where)
    return Candidate(
        text=completion.text,
        answer=context.grader.extract(context.prompts.split(completion.text)[1], problem.answer_type),
        round=round,
        coherence=coherence,
        generated_tokens=completion.generated_tokens,
        finish_reason=completion.finish_reason,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
    )


def going_on(request: Request, begun: Completion, engine: Engine) -> Request | None:
    """Return the request for the rest of ``request``, which begins with ``begun``; None if that is all."""
    ids = request.prompt_ids + begun.token_ids
    left = request.max_new_tokens - begun.generated_tokens
    room = engine.context_length - begun.prompt_tokens - begun.generated_tokens
    if begun.generated_tokens and (begun.finish_reason != "length" or min(left, room) < 1):
        return None
    return replace(request, prompt_ids=ids, max_new_tokens=left)


def joined(begun: Completion, rest: Completion, stop: Sequence[str], engine: Engine) -> Completion:
    """Return the completion that ``begun`` and ``rest`` make up; a stop string may begin in the first."""
    ids, logprobs = begun.token_ids + rest.token_ids, begun.logprobs + rest.logprobs
    tops = begun.top_logprobs[: begun.generated_tokens] + rest.top_logprobs
    count, text, reason = finish(engine.tokenizer, ids, stop=tuple(stop), eos=engine.eos_ids)
    reason = rest.finish_reason if reason == "length" else reason
    return replace(
        rest,
        token_ids=ids[:count],
        logprobs=logprobs[:count],
        text=text,
        finish_reason=reason,
        top_logprobs=tops[:count],
    )


def judge_round(
    candidates: Sequence[Candidate],
    problem: Problem,
    context: Context,
    *,
    verifier: Verifier,
    reward: Reward,
    earlier: Sequence[Verdict],
) -> Steps[tuple[list[Candidate], Verdict]]:
    """Verify a round's candidates together and reward them; their coherence is known.

    ``earlier`` holds the verdicts of the previous rounds.
    """
    verdict = yield from verifier.verify(
        problem, candidates, context, stage=f"round-{len(earlier)}", earlier=earlier
    )
    judged = [
        replace(c, verified=score, agreement=agreed, reward=reward(score, c.coherence or 0.0))
        for c, score, agreed in zip(candidates, verdict.scores, verdict.agreement, strict=True)
    ]
    return judged, verdict


class Rounds:
    """The rounds of one problem: the candidates ``seen``, ``verdicts`` and ``trace``.

    If ``reward`` is pooled, each round rewards all candidates seen so far again.
    """

    def __init__(self, problem: Problem, reward: Reward, final: Any, grader: AnswerGrader) -> None:
        self._problem, self._reward, self._final, self._grader = problem, reward, final, grader
        self._rewards: list[list[float]] = []
        self.seen: list[Candidate] = []
        self.verdicts: list[Verdict] = []
        self.trace: list[dict[str, Any]] = []

    def add(self, candidates: Sequence[Candidate], verdict: Verdict, **more: Any) -> None:
        """Add a judged round; ``more`` goes into its entry of the trace."""
        self.seen += candidates
        self.verdicts.append(verdict)
        if getattr(self._reward, "pooled", False):
            learned = getattr(self._reward, "learned", None)
            prior = learned and learned.verdicts
            scores = pooled_scores(self.seen, self._grader, self._problem.answer_type, prior)
            self.seen = [
                replace(c, reward=self._reward(score, c.coherence or 0.0))
                for c, score in zip(self.seen, scores, strict=True)
            ]
        self._rewards.append(rewards_of(self.seen[len(self.seen) - len(candidates) :]))
        parts = {name: getattr(verdict, name) for name in ("answers", "weights", "texts", "prompts")}
        self.trace.append(
            {
                "round": len(self._rewards) - 1,
                "rewards": self._rewards[-1],
                "verifier": {key: list(value) for key, value in parts.items()},
                **more,
            }
        )

    def end(self, stopping: Stopping, otherwise: str | None = None) -> Steps[bool]:
        """Show the round to who watches, and return whether ``stopping`` or the problem's budget ends them.

        The trace holds the reason. ``otherwise`` is a reason of the method.
        """
        kind, verdict = self._problem.answer_type, self.verdicts[-1]
        known = estimates(self.seen, self._grader, kind)
        votes = [one.yes if one.yes + one.no else len(one.members) for one in known]
        leader = getattr(self._final, "leader", None)
        last = [c for c in self.seen if c.round == len(self._rewards) - 1]
        groups = same_answers([c.answer for c in last], self._grader, kind)
        reason = stopping.reason(
            self._rewards,
            agreement=verdict.agreement,
            scores=verdict.scores,
            votes=None if kind in FREE else votes,
            leader=leader(self.seen, self.verdicts, self._grader, kind) if leader else 0.0,
            unanimous=kind not in FREE and [len(group) for group in groups] == [len(last)],
        )
        reason = reason or otherwise
        spent = yield Round(self._problem, len(self._rewards) - 1, last, self.trace[-1])
        reason = reason or spent
        if reason is not None:
            self.trace[-1]["ended"] = reason
        return reason is not None


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


def sampled(
    problem: Problem,
    context: Context,
    sampling: Sampling,
    count: int,
    max_new_tokens: int,
    *,
    first: int = 0,
    top_logprobs: int = 0,
) -> list[Request]:
    """Return ``count`` requests for a solution, each with a random stream.

    Streams are the same for every method, so methods that sample alike draw the same solutions. ``first``
    is the number of solutions drawn before.
    """
    prompt = context.prompts.solve(problem)
    return [
        Request(
            prompt.ids,
            sampling=sampling,
            max_new_tokens=prompt.most(max_new_tokens),
            stop=prompt.stop,
            seed=sample_seed(problem, context, first + i),
            top_logprobs=top_logprobs,
        )
        for i in range(count)
    ]


def sample_seed(problem: Problem, context: Context, index: int) -> int:
    """Return the seed of a problem's ``index``-th sampled candidate, counted over all rounds."""
    return context.stream(problem.id, "sample", index)
