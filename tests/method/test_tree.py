"""The tree search alone, against values worked out by hand."""

import math

import pytest

from soft_reasoning.method.tree import Node, search, select, uct, votes


def grown(parent, *children):
    """Visited nodes under ``parent`` with these (step, reward) pairs."""
    parent.children += [Node(step, parsed=step, parent=parent, reward=reward) for step, reward in children]
    return parent.children


def test_uct_weighs_value_against_visits():
    root = Node(reward=0.0, returns=[0.0] * 4)
    often = Node(parent=root, reward=0.9, returns=[0.9, 0.8, 0.7])
    never = Node(parent=root, expected=0.5)
    root.children = [often, never]
    assert uct(often, 2.0) == pytest.approx(0.9 + 2 * math.sqrt(math.log(4) / 3))
    assert uct(never, 2.0) == pytest.approx(0.5 + 2 * math.sqrt(math.log(4)))
    # 0.9 + 0.680 w against 0.5 + 1.177 w: equal at w = 0.804.
    assert select(root, 0.80) is often and select(root, 0.81) is never
    never.expected = often.returns[0]
    never.returns, often.returns = [0.9], [0.9]
    assert select(root, 1.0) is often  # the earliest of equals


def test_search_visits_along_expected_rewards_and_never_twice():
    expected = {"a": 0.5, "b": 0.6, "a1": 0.1, "a2": 0.9, "b1": 0.3}
    reward = {"a": 0.9, "b": 0.1, "a1": 0.0, "a2": 1.0, "b1": 0.2}
    follow = {"": "ab", "a": ("a1", "a2"), "b": ("b1",)}
    visited = []

    def visit(node, iteration):
        answer = yield node.question
        assert answer == (node.question, "answered")
        visited.append((iteration, node.question))
        node.reward = reward.get(node.question, 0.0)
        node.children = [
            Node(step, parent=node, expected=expected[step]) for step in follow.get(node.question, ())
        ]

    root = Node()
    steps = search(root, visit, iterations=3, exploration=0.5)
    effect = next(steps)
    with pytest.raises(StopIteration):
        while True:
            effect = steps.send((effect, "answered"))
    # b looks better than a, and returns 0.15; then a, 0.5 unvisited, wins; the third time
    # a: (0.9 + 1) / 2 + 0.5 sqrt(ln 2 / 1) beats b, and below it a2: 1 beats a1: 0.1, both with ln 1 = 0.
    assert visited == [(0, ""), (0, "b"), (0, "b1"), (1, "a"), (1, "a2")]
    a, b = root.children
    assert root.returns == pytest.approx([0.1, 1.9 / 3, 1.9 / 3])
    assert a.returns == pytest.approx([0.95, 0.95]) and b.returns == pytest.approx([0.15])


def test_votes_count_a_node_once_for_each_answer_below_it():
    root = Node(reward=0.0)
    left, right = grown(root, ("left", 0.5), ("right", 0.3))
    grown(left, ("x", 0.2), ("x", 0.4), ("y", 0.8))
    grown(right, ("y", 0.25))
    right.children.append(Node("x", parsed="x", parent=right, expected=0.9))  # not visited
    total = {}
    for answer, weight in votes(root, lambda a, b: a == b):
        total[answer] = total.get(answer, 0) + weight
    assert total == pytest.approx({"x": 0.2 + 0.4 + 0.5, "y": 0.8 + 0.5 + 0.25 + 0.3})
