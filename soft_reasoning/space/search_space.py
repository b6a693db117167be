"""The search space of a question, the centre of the package: a black box f over points u in R^d.

    open      problem -> prompt -> anchor, likely first tokens -> subspace
    evaluate  points (n, d) -> soft tokens -> completions -> candidates -> verifier and coherence -> rewards

The method ``soft_reasoning`` and the BoTorch test problem ``SoftReasoningObjective`` are thin over it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.checks import check_sampling, choice, counts
from soft_reasoning.engines.text import decode
from soft_reasoning.prompts import PLACEMENTS
from soft_reasoning.rewards.combine import Reward, rewards_of
from soft_reasoning.rewards.rounds import Rounds
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.effects import BudgetSpent
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.solutions import read_candidate, resume, solution_request
from soft_reasoning.search.batch import Proposal
from soft_reasoning.search.embedding import Embedding, Subspace
from soft_reasoning.search.optimiser import SearchState
from soft_reasoning.space.describe import describe_tokens
from soft_reasoning.space.features import Features, PointFeatures
from soft_reasoning.space.pool import PointPool
from soft_reasoning.types import (
    GREEDY,
    Candidate,
    Completion,
    FinishReason,
    Generate,
    Problem,
    Prompt,
    Request,
    Sampling,
    UserError,
)


@dataclass(frozen=True, kw_only=True)
class SpaceSettings:
    """The options of a search space, which a method with a search has.

    Args:
        embedding: The subspace that is searched.
        features: The surrogate's inputs for a point of a pool.
        decoding: How tokens after the soft tokens are chosen: greedily (the paper) or sampled, each candidate
            with its own random stream. A reward is then a single random draw at its point.
        placement: Place of the soft tokens in the prompt: ``first``, ``middle`` or ``last``.
        scope: Number of answer tokens that are soft tokens. A candidate's ``opening`` stands for them in its
            text. A verifier with wording for solutions reads the text after it, as in the paper.
        max_new_tokens: Tokens per completion.

    Raises:
        UserError: For a value out of its range.
    """

    embedding: Embedding
    features: Features = PointFeatures()
    decoding: Sampling = GREEDY
    placement: str = "last"
    scope: int = 1
    max_new_tokens: int = 300

    def __post_init__(self) -> None:
        counts(self, "scope", "max_new_tokens")
        choice("placement", self.placement, PLACEMENTS)
        if self.decoding != GREEDY:
            check_sampling(self.decoding, "decoding.", fix="decoding=greedy is greedy decoding")


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """A question with the subspace around its anchor; :meth:`open` makes it.

    Attributes:
        problem: The question.
        context: The engine, prompts, grader and seed.
        settings: How points become completions.
        reward: Its coherence is read from every completion.
        prompt: The question's prompt.
        position: Index in the prompt's ids before which soft tokens are inserted.
        subspace: Maps points (n, d) to soft tokens (n, m, D).
        anchor: The text of the greedy tokens that the soft tokens replace.
        likely: The texts of the tokens that the subspace mixes; none for a random projection.
        pool: The points that the search chooses from; None if it draws new points in each round.
    """

    problem: Problem
    context: Context
    settings: SpaceSettings
    reward: Reward
    prompt: Prompt
    position: int
    subspace: Subspace
    anchor: str
    likely: Sequence[str]
    pool: PointPool | None = None

    @classmethod
    def open(
        cls, problem: Problem, context: Context, settings: SpaceSettings, reward: Reward
    ) -> Steps[SearchSpace]:
        """Ask the model for the anchor and the likely first tokens, and bind the embedding to them."""
        prompt, engine, embedding = context.prompts.solve(problem), context.engine, settings.embedding
        position = context.prompts.position(prompt, settings.placement, problem, seed=context.seed)
        count = embedding.likely_tokens
        special = set(engine.tokenizer.all_special_ids)  # likely tokens exclude these
        top = count + len(special) if count else 1
        [look] = yield Generate([Request(prompt.ids, max_new_tokens=0, top_logprobs=top, role="anchor")])
        if not look.top_logprobs:
            raise BudgetSpent
        greedy = look.top_logprobs[0].ids[:1]
        if settings.scope > 1:
            greedy = yield from _greedy_tokens(prompt, settings.scope)
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
        return cls(problem, context, settings, reward, prompt, position, subspace, anchor, texts)

    @property
    def dim(self) -> int:
        """d, dimensions of the search, for all soft tokens together."""
        return self.subspace.dim

    def evaluate(self, points: Tensor, rounds: Rounds, **entries: Any) -> Steps[None]:
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
        requests = [self.request(x, first + i) for i, x in enumerate(self.subspace(points))]
        if self.pool is None or not self.pool.looks or self.settings.decoding != GREEDY:
            completions = yield Generate(requests)
        else:  # greedy completions continue from the tokens of the looks
            looks = [self.pool.looks[i] for i in self.pool.find(points)]
            completions = yield from resume(requests, looks, self.context.engine)
        coherence, openings = self.reward.coherence_of, self.openings(points)
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

    def request(self, soft: Tensor, index: int) -> Request:
        """Return the request for the completion after ``soft`` (m, D); ``index`` selects its random draws."""
        return solution_request(
            self.problem,
            self.context,
            self.settings.max_new_tokens,
            index=index,
            soft=soft,
            position=self.position,
            sampling=self.settings.decoding,
            top_logprobs=getattr(self.reward, "top_logprobs", 0),
        )

    def look(self, points: Tensor) -> Steps[PointPool]:
        """Look at ``points`` (N, d) in one batch, at equal soft tokens once, and return their pool."""
        soft, features = self.subspace(points), self.settings.features
        first: dict[bytes, int] = {}
        marks = [first.setdefault(x.numpy().tobytes(), i) for i, x in enumerate(soft)]
        distinct = sorted(set(marks))
        requests = [features.look(self.request(soft[i], i)) for i in distinct]
        wanted = [request for request in requests if request is not None]
        looks: list[Completion] = []
        if wanted:
            completions = yield Generate(wanted)
            completion_at = dict(zip(distinct, completions, strict=True))
            looks = [completion_at[mark] for mark in marks]
        if any(look.finish_reason == FinishReason.BUDGET for look in looks):
            return PointPool.of(points, points, marks)  # the rounds to come are empty, too
        behaviours: Sequence[Hashable] = range(len(points))  # sampled completions differ
        if self.settings.decoding == GREEDY:
            seen = any(look.token_ids for look in looks)
            behaviours = [look.token_ids for look in looks] if seen else marks
        return PointPool.of(points, features.rows(points, soft, looks), behaviours, looks)

    def with_pool(self, points: Tensor) -> Steps[SearchSpace]:
        """Return the space from whose ``points`` (N, d) the search chooses, after a look at them."""
        return replace(self, pool=(yield from self.look(points)))

    def state(self, rounds: Rounds, k: int) -> SearchState:
        """Return what an optimiser reads to propose the next ``k`` points, or those left of a pool."""
        U, features, behaviour = self._tried(rounds), None, None
        if self.pool is not None:
            features, behaviour = self.pool.features.unsqueeze(0), self.pool.choices(U).unsqueeze(0)
            k, U = min(k, self.pool.unseen(U)), self.pool.features[self.pool.find(U)]
        return SearchState(
            U.unsqueeze(0),
            torch.tensor([rewards_of(rounds.candidates)], dtype=torch.float64),
            k,
            seed=self.context.seed,
            round=len(rounds.verdicts),
            keys=[self.problem.id],
            features=features,
            behaviour=behaviour,
        )

    def proposed(self, proposal: Proposal) -> Tensor:
        """Return the points (k, d) of a proposal, which names points of a pool by their indices."""
        return proposal.points if self.pool is None else self.pool.points[list(proposal.chosen)]

    def exhausted(self, rounds: Rounds) -> bool:
        """Whether every point of the pool, or one that behaves alike, was tried."""
        return self.pool is not None and not self.pool.unseen(self._tried(rounds))

    def _tried(self, rounds: Rounds) -> Tensor:
        """(n, d): the points of all candidates."""
        return torch.tensor([c.u for c in rounds.candidates], dtype=torch.float64).reshape(-1, self.dim)

    def describe(self, points: Tensor) -> list[list[dict[str, Any]]]:
        """Return the tokens that are nearest to each soft token of ``points`` (n, d), for a trace."""
        return describe_tokens(self.subspace, points, self.likely, self.context.engine)

    def summary(self) -> dict[str, Any]:
        """Return the space's entries in a trace."""
        pool = None if self.pool is None else self.pool.summary()
        return {"anchor": self.anchor} | ({} if pool is None else {"pool": pool})


def _greedy_tokens(prompt: Prompt, count: int) -> Steps[tuple[int, ...]]:
    """The first ``count`` greedy tokens."""
    request = Request(prompt.ids, max_new_tokens=count, min_new_tokens=count, role="anchor")
    [completion] = yield Generate([request])
    if completion.generated_tokens < count:
        raise UserError(
            f"method.scope: expected max_tokens and max_seconds to allow {count} tokens before the search, "
            f"got {completion.generated_tokens}; raise them"
        )
    return completion.token_ids
