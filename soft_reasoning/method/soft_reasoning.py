"""Soft Reasoning: Bayesian optimisation of the first answer token's embedding (paper, Section "Methodology").

The method proposes points u in R^d. A question's :class:`SearchSpace` is the black box that it searches:

    open      problem -> prompt -> anchor, likely first tokens -> subspace
    evaluate  points (n, d) -> soft tokens -> completions -> candidates -> verifier and coherence -> rewards

The BoTorch test problem ``SoftReasoningObjective`` is thin over the same space. With an optimiser that
ignores rewards the method is the control ``random_embedding``, with the same budget, verifier and final rule.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from soft_reasoning.checks import choice, counts, whole
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.text import decode
from soft_reasoning.judge.reward import rewards_of
from soft_reasoning.method.rounds import Rounds, VerifiedMethod
from soft_reasoning.prompts import PLACEMENTS
from soft_reasoning.schedule.effects import BudgetSpent, answers, grouped
from soft_reasoning.schedule.job import Job
from soft_reasoning.schedule.method import Context, Effect, Generate, Steps
from soft_reasoning.schedule.solutions import greedy_tokens, read_candidate, solution_request
from soft_reasoning.search.embedding import Embedding, Subspace, TokenSimplexEmbedding
from soft_reasoning.search.optimiser import BayesianOptimiser, Optimiser, SearchState
from soft_reasoning.search.points import Proposal
from soft_reasoning.types import (
    MAX_NEW_TOKENS,
    Candidate,
    Problem,
    Prompt,
    Request,
    Result,
    Sampling,
    UserError,
    generator_for,
)

NEAREST = 3
"""Number of nearest tokens that a trace names for each soft token."""


@dataclass(frozen=True, kw_only=True)
class SoftReasoning(VerifiedMethod):
    """Searches soft tokens by Bayesian optimisation, with a verifier's rewards.

    The other parts are those of :class:`VerifiedMethod`.

    Args:
        embedding: The subspace that is searched.
        optimiser: Proposes points.
        k: Completions per round.
        decoding: How tokens after the soft tokens are chosen: greedily (the paper) or sampled, each candidate
            with its own random stream. A reward is then a single random draw at its point.
        placement: Place of the soft tokens in the prompt: ``first``, ``middle`` or ``last``.
        scope: Number of answer tokens that are soft tokens. A candidate's ``opening`` stands for them in its
            text. A verifier with wording for solutions reads the text after it, as in the paper.
        max_new_tokens: Tokens per completion.

    Raises:
        UserError: For a value out of its range.
    """

    embedding: Embedding = field(default_factory=TokenSimplexEmbedding)
    optimiser: Optimiser = field(default_factory=BayesianOptimiser)
    k: int = 5
    decoding: Sampling = Sampling(temperature=0.8, top_k=50)
    placement: str = "last"
    scope: int = 1
    max_new_tokens: int = MAX_NEW_TOKENS
    name: str = "soft_reasoning"
    needs: ClassVar[frozenset[str]] = frozenset({"rows", "logprobs"})
    short: ClassVar[Mapping[str, str]] = {
        "k": "k",
        "d": "embedding.dim",
        "delta": "optimiser.acquisition.delta",
        "lambda": "optimiser.surrogate.noise",
        "epsilon": "stopping.threshold",
        "placement": "placement",
        "rounds": "stopping.rounds",
        "temperature": "decoding.temperature",
        "search": "optimiser",
        **{name: f"optimiser.{name}" for name in ("surrogate", "acquisition", "candidate_points", "batch")},
    }

    def __post_init__(self) -> None:
        whole("k", self.k, least=2)
        counts(self, "scope", "max_new_tokens")
        choice("placement", self.placement, PLACEMENTS)

    @property
    def independent(self) -> bool:
        """Whether the optimiser draws its points at random, as in the control."""
        return getattr(self.optimiser, "independent", False)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        space = yield from SearchSpace.open(problem, context, self)
        rounds = Rounds(self, problem, context)
        stream = generator_for(context.seed, problem.id, "initial")
        points, summary = self.optimiser.initial(self.k, space.dim, stream), None
        while True:
            yield from space.evaluate(points, rounds, tokens=space.describe(points), proposal=summary)
            if (yield from rounds.end()):
                break
            proposal: Proposal = yield Propose(self.optimiser, space.state(rounds, self.k))
            points, summary = proposal.points, proposal.summary()
        rounds.trace[0]["anchor"] = space.anchor
        return rounds.result()


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """A question with the subspace around its anchor; :meth:`open` creates it.

    Attributes:
        problem: The question.
        context: The engine, prompts, grader and seed.
        method: Its options say how points become completions, and its reward reads their coherence.
        prompt: The question's prompt.
        position: Index in the prompt's ids before which soft tokens are inserted.
        subspace: Maps points (n, d) to soft tokens (n, m, D).
        anchor: The text of the greedy tokens that the soft tokens replace.
        likely: The texts of the tokens that the subspace mixes; none for a random projection.
    """

    problem: Problem
    context: Context
    method: SoftReasoning
    prompt: Prompt
    position: int
    subspace: Subspace
    anchor: str
    likely: Sequence[str]

    @classmethod
    def open(cls, problem: Problem, context: Context, method: SoftReasoning) -> Steps[SearchSpace]:
        """Ask the model for the anchor and the likely first tokens, and bind the embedding to them."""
        prompt, engine, embedding = context.prompts.solve(problem), context.engine, method.embedding
        position = context.prompts.position(prompt, method.placement, problem, seed=context.seed)
        count = embedding.likely_tokens
        special = set(engine.tokenizer.all_special_ids)  # likely tokens exclude these
        top = count + len(special) if count else 1
        [look] = yield Generate([Request(prompt.ids, max_new_tokens=0, top_logprobs=top, role="anchor")])
        if not look.top_logprobs:
            raise BudgetSpent
        greedy = look.top_logprobs[0].ids[:1]
        if method.scope > 1:
            greedy = yield from greedy_tokens(prompt, method.scope)
        likely = [token for token in look.top_logprobs[0].ids if token not in special][:count]
        if len(likely) < count:
            raise UserError(f"embedding.dim: expected at most the vocabulary's size, got {count}")
        subspace = embedding.bind(
            anchor=engine.embed(greedy),
            rms=engine.embedding_rms,
            seed=context.seed,
            tokens=engine.embed(likely) if likely else None,
        )
        texts = [engine.tokenizer.decode([token]) for token in likely]
        anchor = engine.tokenizer.decode(list(greedy))
        return cls(problem, context, method, prompt, position, subspace, anchor, texts)

    @property
    def dim(self) -> int:
        """d, dimensions of the search, for all soft tokens together."""
        return self.subspace.dim

    def evaluate(self, points: Tensor, rounds: Rounds, **entries: object) -> Steps[None]:
        """Evaluate a round: complete from ``points`` (n, d), verify the candidates together, reward them.

        The round is added to ``rounds``; ``entries`` are further fields of it in the trace.
        """
        candidates = yield from self.complete(
            points, round=len(rounds.verdicts), first=len(rounds.candidates)
        )
        yield from rounds.verify(candidates, **entries)

    def complete(self, points: Tensor, *, round: int = 0, first: int = 0) -> Steps[list[Candidate]]:
        """Complete from ``points`` (n, d), and return the candidates without verdict and reward.

        ``first`` is the number of earlier candidates.
        """
        asked = partial(solution_request, self.problem, self.context, self.method.max_new_tokens)
        asked = partial(asked, position=self.position, sampling=self.method.decoding)
        completions = yield Generate(
            [asked(index=first + i, soft=x) for i, x in enumerate(self.subspace(points))]
        )
        coherence, openings = self.method.reward.coherence_of, self.openings(points)
        candidates = [
            read_candidate(c, self.problem, self.context, round, coherence(c), opening)
            for c, opening in zip(completions, openings, strict=True)
        ]
        return [
            replace(candidate, u=tuple(u.tolist())) for u, candidate in zip(points, candidates, strict=True)
        ]

    def openings(self, points: Tensor) -> list[str]:
        """Return the texts that stand for the soft tokens of ``points`` (n, d) before their completions.

        For a mixture this is the token of largest weight. For any other soft token it is the nearest token,
        and only free text begins with it, since it may be far away. Soft tokens elsewhere in the prompt have
        no opening.
        """
        engine, weights = self.context.engine, self.subspace.weights(points)
        far = weights is None and not self.context.prompts.neutral
        if self.position < len(self.prompt.ids) or far:
            return [""] * len(points)
        if weights is not None:
            return ["".join(self.likely[int(t)] for t in row) for row in weights.argmax(-1).tolist()]
        soft = self.subspace(points)
        nearest = iter(engine.nearest_tokens(soft.flatten(0, 1), 1))
        rows = [[next(nearest)[0][0] for _ in range(soft.shape[1])] for _ in points]
        return [decode(engine.tokenizer, row) for row in rows]

    def state(self, rounds: Rounds, k: int) -> SearchState:
        """Return what an optimiser reads to propose the next ``k`` points."""
        U = torch.tensor([candidate.u for candidate in rounds.candidates], dtype=torch.float64)
        y = torch.tensor([rewards_of(rounds.candidates)], dtype=torch.float64)
        return SearchState(
            U.unsqueeze(0), y, k, seed=self.context.seed, round=len(rounds.verdicts), keys=[self.problem.id]
        )

    def describe(self, points: Tensor) -> list[list[dict[str, object]]]:
        """Return what a trace says of each soft token of ``points`` (n, d), which has no text.

        These are its nearest tokens by cosine and, if it is a mixture of tokens, its largest weights.
        """
        engine, soft, weights = self.context.engine, self.subspace(points), self.subspace.weights(points)
        nearest = iter(engine.nearest_tokens(soft.flatten(0, 1), NEAREST))

        def entry(i: int, j: int) -> dict[str, object]:
            tokens = [[engine.tokenizer.decode([token]), round(cosine, 4)] for token, cosine in next(nearest)]
            if weights is None:
                return {"nearest": tokens}
            heaviest = torch.topk(weights[i, j].abs(), min(NEAREST, weights.shape[-1])).indices.tolist()
            shares = [[self.likely[t], round(float(weights[i, j, t]), 4)] for t in heaviest]
            return {"nearest": tokens, "weights": shares}

        return [[entry(i, j) for j in range(soft.shape[1])] for i in range(len(soft))]


@dataclass(frozen=True, eq=False)
class Propose(Effect):
    """Requests the next points after the ``state`` of a question; the answer is a :class:`Proposal`."""

    optimiser: Optimiser
    state: SearchState


@answers(Propose, time="optimiser")
def propose(jobs: Sequence[Job[Propose]], engine: Engine) -> list[Proposal]:
    """Call ``optimiser.propose`` once for all questions whose data have the same shape and seed."""

    def stream(job: Job[Propose]) -> Hashable:
        state = job.effect.state
        return (id(job.effect.optimiser), *state.U.shape, state.k, state.round, state.seed)

    proposals: dict[Job[Propose], Proposal] = {}
    for group in grouped(jobs, stream):
        state = SearchState.join([job.effect.state for job in group])
        proposals.update(zip(group, group[0].effect.optimiser.propose(state), strict=True))
    return [proposals[job] for job in jobs]
