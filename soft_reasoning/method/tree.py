"""The tree of :mod:`~soft_reasoning.method.rap`: Monte Carlo tree search over steps that are costly to take.

The caller's generator ``visit`` takes a step, rewards it and finds its successors. The search forwards the
effects that it yields and knows no language model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any


@dataclass(eq=False)
class Node:
    """A sub-question, and after its visit its answer. The root is neither.

    Attributes:
        question: The sub-question.
        useful: Its usefulness according to the model, in [0, 1].
        tokens: Tokens of question and answer.
        parent: The node before it; None at the root.
        expected: Its estimated reward before its visit.
        reward: Its reward after its visit; None before.
        children: The nodes that may follow.
        returns: One value per back-up.
        answer: The answer as written.
        parsed: The parsed answer.
        confidence: Share of the ``drawn`` answers that agree with it.
        drawn: Number of sampled answers.
        round: Iteration of the visit.
    """

    question: str = ""
    useful: float = 0.0
    tokens: int = 0
    parent: Node | None = None
    expected: float = 0.0
    reward: float | None = None
    children: list[Node] = field(default_factory=list["Node"])
    returns: list[float] = field(default_factory=list[float])
    answer: str = ""
    parsed: str | None = None
    confidence: float = 0.0
    drawn: int = 0
    round: int = 0

    @property
    def value(self) -> float:
        """Q: the best return so far; the expected reward before the first return."""
        return max(self.returns, default=self.expected)

    @property
    def chain(self) -> list[Node]:
        """From the first sub-question to this node."""
        return [*self.parent.chain, self] if self.parent else []

    @property
    def path(self) -> list[Node]:
        """From the root to this node."""
        return [*(self.parent.path if self.parent else ()), self]


def search(
    root: Node,
    visit: Callable[[Node, int], Generator[Any, Any, None]],
    *,
    iterations: int,
    exploration: float,
) -> Generator[Any, Any, None]:
    """Grow the tree under ``root``, which has not been visited.

    An iteration selects a leaf, visits it unless it was visited, follows the highest expected rewards to an
    end, and backs up. ``visit(node, iteration)`` sets the node's reward and children; a visited node
    without children is an end.
    """
    for iteration in range(iterations):
        leaf = select(root, exploration)
        if leaf.reward is None:
            yield from visit(leaf, iteration)
        while leaf.children:
            leaf = max(leaf.children, key=lambda child: child.expected)
            yield from visit(leaf, iteration)
        back_up(leaf)


def select(root: Node, exploration: float) -> Node:
    """Return the leaf that UCT leads to; the earliest wins a tie."""
    node = root
    while node.children:
        node = max(node.children, key=lambda child: uct(child, exploration))
    return node


def uct(node: Node, exploration: float) -> float:
    """Return Q + exploration * sqrt(ln N(parent) / max(1, N)), where N counts back-ups."""
    assert node.parent is not None  # the root is never chosen
    visits = math.log(len(node.parent.returns)) / max(1, len(node.returns))
    return node.value + exploration * math.sqrt(visits)


def back_up(leaf: Node) -> None:
    """Give every node on the leaf's path the mean of the rewards from it to the leaf."""
    path = leaf.path
    rewards = [node.reward or 0.0 for node in path]  # every node of the path was visited
    for i, node in enumerate(path):
        node.returns.append(fmean(rewards[i:]))


def votes(root: Node, same: Callable[[str | None, str | None], bool]) -> list[tuple[str | None, float]]:
    """Return (answer, weight) pairs of the finished tree by the "edge" aggregation.

    Each visited end votes for its answer with its reward, and each other visited node votes once for every
    distinct answer below it.
    """
    pairs: list[tuple[str | None, float]] = []

    def collect(node: Node) -> list[str | None]:
        if node.reward is None:
            return []
        answers = [] if node.children else [node.parsed]
        for child in node.children:
            answers += [a for a in collect(child) if not any(same(a, b) for b in answers)]
        pairs.extend((a, node.reward) for a in answers)
        return answers

    collect(root)
    return pairs
