"""Shared by methods: requests for solutions, candidates from completions, votes, rounds with a verifier."""

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
from soft_reasoning.thoughts import answer_start
from soft_reasoning.types import Candidate, Completion, Generate, Problem, Prompt, Request, Result, Round


def read_candidate(
    completion: Completion, problem: Problem, context: Context, round: int = 0, reward: Reward | None = None
) -> Candidate:
    """Return the candidate of ``completion``: its text, its parsed answer and its tokens.

    With a ``reward`` it has its coherence, too.
    """
    return Candidate(
        text=completion.text,
        answer=context.grader.extract(
            context.prompts.split(completion.text)[1], problem.answer_type, problem.question
        ),
        round=round,
        coherence=None if reward is None else reward.of_coherence(completion),
        generated_tokens=completion.generated_tokens,
        finish_reason=completion.finish_reason,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
    )


def _request_rest(request: Request, begin: Completion, engine: Engine) -> Request | None:
    """Return the request for the rest of ``request`` after ``begin``; None if ``begin`` is complete."""
    ids = request.prompt_ids + begin.token_ids
    left = request.max_new_tokens - begin.generated_tokens
    room = engine.context_length - begin.prompt_tokens - begin.generated_tokens
    if begin.generated_tokens and (begin.finish_reason != "length" or min(left, room) < 1):
        return None
    thinks = answer_start(begin.text, request.thinks) is None
    return replace(request, prompt_ids=ids, max_new_tokens=left, thinks=thinks)


def join(
    begin: Completion, rest: Completion, asked: Request | Prompt, engine: Engine, *, unfinished: bool = False
) -> Completion:
    """Return the completion ``begin`` of ``asked`` followed by ``rest``; a stop string may lie across both.

    ``unfinished`` means that ``begin`` is known not to have ended.
    """
    least = begin.generated_tokens if unfinished else 0
    ids, logprobs = begin.token_ids + rest.token_ids, begin.logprobs + rest.logprobs
    tops = begin.top_logprobs[: begin.generated_tokens] + rest.top_logprobs
    count, text, reason = finish(
        engine.tokenizer, ids, stop=asked.stop, eos=engine.eos_ids, min_new_tokens=least,
        thinks=asked.thinks,
    )  # fmt: skip
    reason = rest.finish_reason if reason == "length" else reason
    return replace(
        rest,
        token_ids=ids[:count],
        logprobs=logprobs[:count],
        text=text,
        finish_reason=reason,
        top_logprobs=tops[:count],
    )


def resume(
    requests: Sequence[Request], begins: Sequence[Completion], engine: Engine
) -> Steps[list[Completion]]:
    """Complete each of ``requests`` from its entry in ``begins``; complete entries stay as they are."""
    pairs = zip(requests, begins, strict=True)
    rest_requests = [_request_rest(request, begin, engine) for request, begin in pairs]
    rest = iter((yield Generate([request for request in rest_requests if request is not None])))
    return [
        begin if request is None else join(begin, next(rest), request, engine, unfinished=True)
        for request, begin in zip(rest_requests, begins, strict=True)
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

    def verify(self, candidates: Sequence[Candidate], **entries: Any) -> Steps[None]:
        """Verify a round's candidates together, and add them as :meth:`add` does."""
        verdict = yield from self._parts.verifier.verify(
            self._problem, candidates, self._context, tuple(self.verdicts)
        )
        self.add(candidates, verdict, **entries)

    def add(self, candidates: Sequence[Candidate], verdict: Verdict, **entries: Any) -> None:
        """Reward a round's candidates, whose coherence is known, and add them.

        ``entries`` are further fields of the round in the trace.
        """
        reward, parts = self._parts.reward, ("answers", "weights", "texts", "prompts")
        counted = not getattr(self._parts.verifier, "reads_coherence", False)
        rewarded = [
            replace(c, verified=score, agreement=agreed, reward=reward(score, counted * (c.coherence or 0.0)))
            for c, score, agreed in zip(candidates, verdict.scores, verdict.agreement, strict=True)
        ]
        self.seen += rewarded
        self.verdicts.append(verdict)
        verifier: dict[str, Any] = {name: list(getattr(verdict, name)) for name in parts}
        if verdict.parts:
            verifier["parts"] = {name: list(values) for name, values in verdict.parts.items()}
        entry = {"round": len(self.trace), "rewards": rewards_of(rewarded), "verifier": verifier}
        self.trace.append({**entry, **entries})

    def end(self, method_reason: str | None = None) -> Steps[bool]:
        """Report the round, and return whether the rounds end: by stopping rule, method or budget.

        The trace holds the reason. ``method_reason`` is the method's reason to end them, if any.
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
        reason = reason or method_reason or spent
        if reason is not None:
            self.trace[-1]["ended"] = reason
        return reason is not None

    def answer(self) -> str | None:
        """Return the final answer by the method's rule."""
        return self._parts.final.choose(self.judged)

    def result(self) -> Result:
        """Return the final answer with all candidates and the trace."""
        return Result(self.answer(), tuple(self.seen), tuple(self.trace))


def check_sampling(values: Any, prefix: str = "", *, fix: str = "method=cot is greedy decoding") -> None:
    """Check the ``temperature``, ``top_k`` and ``top_p`` of ``values``, whose names begin with ``prefix``.

    ``fix`` is the advice for a temperature of 0.

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
    problem: Problem, context: Context, max_new_tokens: int, *, index: int | None = None, **fields: Any
) -> Request:
    """Return the request for a solution; ``fields`` are further fields of the request.

    ``index`` counts a problem's sampled candidates over all rounds and selects a candidate's random stream.
    Streams are the same for every method, so methods with equal sampling draw the same solutions.
    """
    prompt = context.prompts.solve(problem)
    seed = 0 if index is None else context.stream(problem.id, "sample", index)
    most = prompt.most(max_new_tokens)
    return Request(
        prompt.ids, max_new_tokens=most, stop=prompt.stop, thinks=prompt.thinks, seed=seed, **fields
    )


def majority_vote(
    completions: Sequence[Completion], problem: Problem, context: Context, *trace: Mapping[str, Any]
) -> Result:
    """Return the majority answer: unparsed answers do not vote, and the earliest wins a tie."""
    candidates = tuple(read_candidate(completion, problem, context) for completion in completions)
    answer = context.grader.vote([c.answer for c in candidates], problem.answer_type)
    return Result(answer, candidates, trace)
