"""Soft Reasoning: Bayesian optimisation of the first answer token's embedding (paper, Section "Methodology").

With an optimiser that ignores rewards it is the control ``random_embedding``, with the same budget, verifier
and final rule.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.checks import choice, counts, whole
from soft_reasoning.engines.base import Engine
from soft_reasoning.methods.base import (
    Rounds,
    Verified,
    check_sampling,
    read_candidate,
    resume,
    solution_request,
)
from soft_reasoning.methods.propose import Propose
from soft_reasoning.methods.scale import ChooseSigma
from soft_reasoning.prompts import PLACEMENTS
from soft_reasoning.rewards.combine import rewards_of
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.effects import BudgetSpent
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.search.batch import Proposal
from soft_reasoning.search.embedding import Embedding, GaussianEmbedding, Subspace
from soft_reasoning.search.features import Features, PointFeatures, Pool
from soft_reasoning.search.optimiser import Optimiser, SearchState
from soft_reasoning.types import (
    GREEDY,
    Candidate,
    Completion,
    Generate,
    Problem,
    Prompt,
    Request,
    Result,
    Sampling,
    UserError,
    generator_for,
)  # fmt: skip

NEAREST = 3
"""Number of nearest tokens in the trace for each soft token."""


@dataclass(frozen=True, eq=False)
class BlackBox:
    """A problem with its prompt and search space.

    Attributes:
        problem: The problem.
        prompt: Its prompt.
        position: Index in the prompt's ids before which soft tokens are inserted.
        subspace: The subspace around its anchor.
        likely: The texts of the tokens that have weights.
        anchor: The text of the greedy tokens that the soft tokens replace.
        sigma: The scale that ``embedding.sigma=auto`` chose; None if the configuration sets it.
        pool: The points that the search chooses from; None if it draws new points in each round.
    """

    problem: Problem
    prompt: Prompt
    position: int
    subspace: Subspace
    likely: list[str]
    anchor: str
    sigma: float | None = None
    pool: Pool | None = None


@dataclass(frozen=True)
class SoftReasoning(Verified):
    """Searches soft tokens by Bayesian optimisation, with a verifier's rewards.

    The first parts are those of :class:`Verified`.

    Args:
        embedding: The subspace that is searched.
        optimiser: Proposes points.
        features: The surrogate's inputs for a point of the optimiser's pool.
        decoding: How tokens after the soft tokens are chosen: greedily (the paper) or sampled, each candidate
            with its own random stream. A reward is then a single random draw at its point.
        candidates: k, completions per round.
        placement: Place of the soft tokens in the prompt: ``first``, ``middle`` or ``last``.
        scope: Number of answer tokens that are soft tokens. They have no text, so a candidate's text, which
            the verifier reads, begins after them.
        max_new_tokens: Tokens per completion.

    Raises:
        UserError: For a value out of its range.
    """

    embedding: Embedding
    optimiser: Optimiser
    features: Features = PointFeatures()
    decoding: Sampling = GREEDY
    candidates: int = 5
    placement: str = "last"
    scope: int = 1
    max_new_tokens: int = 300
    name: str = "soft_reasoning"

    def __post_init__(self) -> None:
        whole("candidates", self.candidates, least=2)
        counts(self, "scope", "max_new_tokens")
        choice("placement", self.placement, PLACEMENTS)
        if self.optimiser.pool is None and not isinstance(self.features, PointFeatures):
            raise UserError(
                "features: expected features=point without a pool of points, got "
                f"{type(self.features).__name__}; use candidate_points=pool with search=bayesian or random"
            )
        if self.decoding != GREEDY:
            check_sampling(self.decoding, "decoding.", fix="decoding=greedy is greedy decoding")

    @property
    def independent(self) -> bool:
        """Whether the optimiser draws its points at random, as in the control."""
        return getattr(self.optimiser, "independent", False)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        box = yield from self.open(problem, context)
        stream = generator_for(context.seed, problem.id, "initial")
        points = self.optimiser.initial(self.optimiser.pool or self.candidates, box.subspace.dim, stream)
        proposal: Proposal | None = None
        if self.optimiser.pool is not None:
            pool = yield from self.look(box, points, context)
            box = replace(box, pool=pool)
            points, _ = yield from self._propose(box, (), 0, context)
        rounds = Rounds(self, problem, context)
        while True:
            tokens = _describe_tokens(box, points, context.engine)
            entries = {"tokens": tokens, "proposal": _describe_proposal(proposal)}
            yield from self.evaluate(box, points, rounds, context, **entries)
            exhausted = box.pool is not None and not box.pool.unseen(_points(rounds.seen, box.subspace.dim))
            if (yield from rounds.end("exhausted" if exhausted else None)):
                break
            points, proposal = yield from self._propose(box, rounds.seen, len(rounds.verdicts), context)
        rounds.trace[0]["anchor"] = box.anchor
        if box.sigma is not None:
            rounds.trace[0]["sigma"] = box.sigma
        if box.pool is not None:
            rounds.trace[0]["pool"] = box.pool.summary()
        return rounds.result()

    def open(self, problem: Problem, context: Context) -> Steps[BlackBox]:
        """Return the question's prompt, anchor and subspace."""
        prompt, engine, count = context.prompts.solve(problem), context.engine, self.embedding.likely_tokens
        position = context.prompts.position(prompt, self.placement, problem, seed=context.seed)
        special = set(engine.tokenizer.all_special_ids)  # likely tokens exclude these
        top = count + len(special) if count else 1
        [look] = yield Generate([Request(prompt.ids, max_new_tokens=0, top_logprobs=top, role="anchor")])
        if not look.top_logprobs:
            raise BudgetSpent
        greedy = look.top_logprobs[0].ids[:1]
        if self.scope > 1:
            greedy = yield from self._greedy(prompt)
        likely = [token for token in look.top_logprobs[0].ids if token not in special][:count]
        if len(likely) < count:
            raise UserError(f"embedding.dim: expected at most the vocabulary's size, got {count}")
        embedding, sigma = self.embedding, None
        if isinstance(embedding, GaussianEmbedding) and embedding.sigma is None:
            sigma = yield ChooseSigma(embedding, context, self.placement)
            embedding = embedding.at(sigma)
        subspace: Subspace = embedding.bind(
            anchor=engine.embed(greedy),
            rms=engine.embedding_rms,
            seed=context.seed,
            tokens=engine.embed(likely) if likely else None,
        )
        texts = [engine.tokenizer.decode([token]) for token in likely]
        anchor = engine.tokenizer.decode(list(greedy))
        return BlackBox(problem, prompt, position, subspace, texts, anchor, sigma)

    def _greedy(self, prompt: Prompt) -> Steps[tuple[int, ...]]:
        """The first ``scope`` greedy tokens."""
        request = Request(prompt.ids, max_new_tokens=self.scope, min_new_tokens=self.scope, role="anchor")
        [completion] = yield Generate([request])
        if completion.generated_tokens < self.scope:
            raise UserError(
                f"method.scope: expected max_tokens and max_seconds to allow {self.scope} tokens before "
                f"the search, got {completion.generated_tokens}; raise them"
            )
        return completion.token_ids

    def look(self, box: BlackBox, points: Tensor, context: Context) -> Steps[Pool]:
        """Look at ``points`` (N, d) in one batch, at equal soft tokens once, and return their pool."""
        soft = box.subspace(points)
        first: dict[bytes, int] = {}
        marks = [first.setdefault(x.numpy().tobytes(), i) for i, x in enumerate(soft)]
        distinct = sorted(set(marks))
        requests = [self.features.look(self._request(box, soft[i], i, context)) for i in distinct]
        wanted = [request for request in requests if request is not None]
        looks: list[Completion] = []
        if wanted:
            completions = yield Generate(wanted)
            completion_at = dict(zip(distinct, completions, strict=True))
            looks = [completion_at[mark] for mark in marks]
        if any(look.finish_reason == "budget" for look in looks):
            return Pool.of(points, points, marks)  # the rounds to come are empty, too
        behaviours: Sequence[Hashable] = range(len(points))  # sampled completions differ
        if self.decoding == GREEDY:
            seen = any(look.token_ids for look in looks)
            behaviours = [look.token_ids for look in looks] if seen else marks
        return Pool.of(points, self.features.rows(points, soft, looks), behaviours, looks)

    def _propose(
        self, box: BlackBox, seen: Sequence[Candidate], number: int, context: Context
    ) -> Steps[tuple[Tensor, Proposal]]:
        """Return the next points (k, d) and the optimiser's proposal."""
        U = _points(seen, box.subspace.dim)
        y = torch.tensor([rewards_of(seen)], dtype=torch.float64)
        k, pool, features, behaviour = self.candidates, box.pool, None, None
        if pool is not None:
            features, behaviour = pool.features.unsqueeze(0), pool.choices(U).unsqueeze(0)
            k, U = min(k, pool.unseen(U)), pool.features[pool.find(U)]
        state = SearchState(
            U.unsqueeze(0), y, k, seed=context.seed, round=number, keys=[box.problem.id],
            features=features, behaviour=behaviour,
        )  # fmt: skip
        proposal: Proposal = yield Propose(self.optimiser, state)
        return proposal.points if pool is None else pool.points[list(proposal.chosen)], proposal

    def evaluate(
        self, box: BlackBox, points: Tensor, rounds: Rounds, context: Context, **entries: Any
    ) -> Steps[None]:
        """Evaluate a round: complete from ``points`` (n, d), verify the candidates together, reward them.

        The round is added to ``rounds``; ``entries`` are further fields of it in the trace.
        """
        number, first = len(rounds.verdicts), len(rounds.seen)
        candidates = yield from self.complete(box, points, context, round=number, first=first)
        yield from rounds.verify(candidates, **entries)

    def complete(
        self, box: BlackBox, points: Tensor, context: Context, *, round: int = 0, first: int = 0
    ) -> Steps[list[Candidate]]:
        """Complete from ``points`` (n, d), and return the candidates without verdict and reward.

        ``first`` is the number of earlier candidates.
        """
        requests = [self._request(box, x, first + i, context) for i, x in enumerate(box.subspace(points))]
        if box.pool is None or not box.pool.looks or self.decoding != GREEDY:
            completions = yield Generate(requests)
        else:  # greedy completions continue from the tokens of the looks
            looks = [box.pool.looks[i] for i in box.pool.find(points)]
            completions = yield from resume(requests, looks, context.engine)
        return [
            replace(read_candidate(completion, box.problem, context, round, self.reward), u=tuple(u.tolist()))
            for u, completion in zip(points, completions, strict=True)
        ]

    def _request(self, box: BlackBox, soft: Tensor, index: int, context: Context) -> Request:
        return solution_request(
            box.problem, context, self.max_new_tokens, index=index, soft=soft, position=box.position,
            sampling=self.decoding, top_logprobs=getattr(self.reward, "top_logprobs", 0),
        )  # fmt: skip


def _points(seen: Sequence[Candidate], dim: int) -> Tensor:
    """(n, dim): the points of candidates."""
    return torch.tensor([c.u for c in seen], dtype=torch.float64).reshape(-1, dim)


def _describe_tokens(box: BlackBox, points: Tensor, engine: Engine) -> list[list[dict[str, Any]]]:
    """For each candidate and soft token: its nearest tokens by cosine, and its largest weights.

    There are weights if a soft token is a mixture of likely tokens.
    """
    soft, weights, decode = box.subspace(points), box.subspace.weights(points), engine.tokenizer.decode
    nearest = iter(engine.nearest_tokens(soft.flatten(0, 1), NEAREST))

    def row(i: int, j: int) -> dict[str, Any]:
        near = {"nearest": [[decode([token]), round(cosine, 4)] for token, cosine in next(nearest)]}
        if weights is None:
            return near
        heaviest = torch.topk(weights[i, j].abs(), min(NEAREST, weights.shape[-1])).indices.tolist()
        return {**near, "weights": [[box.likely[t], round(float(weights[i, j, t]), 4)] for t in heaviest]}

    return [[row(i, j) for j in range(soft.shape[1])] for i in range(len(soft))]


def _describe_proposal(proposal: Proposal | None) -> dict[str, Any] | None:
    """The surrogate's expectations of a round; None for the first round.

    Numbers have six digits, since a float's last digits depend on the batch and the number of threads.
    """
    if proposal is None:
        return None
    columns = {"mean": proposal.mean, "sd": proposal.sd, "acquisition": proposal.acquisition}
    rounded = {name: [float(f"{value:.6g}") for value in column.tolist()] for name, column in columns.items()}
    return {**rounded, "decided": proposal.decided}
