"""Reasoning via planning: tree search over sub-questions (Hao et al. 2023).

A node asks one sub-question and holds its answer. Its reward combines how useful the model finds the
question and how far sampled answers agree. A chain ends with the problem's question, and every chain
votes for its answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.checks import counts, real, whole
from soft_reasoning.judge.final import same_answers
from soft_reasoning.schedule.effects import BudgetSpent
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.schedule.solutions import SamplingOptions, ask_yes_no
from soft_reasoning.types import Candidate, Completion, Problem, Prompt, Request, Result

END = "Now we can answer"
FINAL = f"{END} the question:"
"""The start of the last sub-question of a chain; the problem's question follows."""

ANSWER_CUE = "The answer is"
"""The text before the answer to a sub-question."""

DECOMPOSITIONS = 4
"""Worked decompositions in the prompts of the method's authors."""

SETTLED = 0.5
"""Share of the sampled answers at which sampling ends, if no other answer is as frequent."""

_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b[DMS][rst]\.)(?<!\bMrs\.)\s+")  # not "Mr. J. Doe"


@dataclass(eq=False)
class Node:
    """A node of the tree: a sub-question, and after its visit its answer. The root is neither.

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


@dataclass(frozen=True, kw_only=True)
class ReasoningViaPlanning(SamplingOptions):
    """Tree search by UCT over sub-questions.

    A candidate is the end of a chain. Its ``round`` is the iteration that reached it, its reward the mean
    reward of the chain. The text of the final question is known, so the model does not write it. The other
    options are those of :class:`SamplingOptions`, here for each question or answer.

    Args:
        actions: Maximum number of distinct sub-questions after a node.
        answers: Maximum number of answers to a sub-question.
        chunk: Answers drawn before checking whether most agree.
        depth: Sub-questions of a chain, including the final question.
        iterations: Iterations of the search.
        exploration: Exploration weight of UCT.
        usefulness_weight: w in the reward usefulness ** w * confidence ** (1 - w) of a node.
        expected_confidence: The confidence before a node's visit.
        shots: Worked decompositions in its prompts, at most as many as the wording has. None shows as many as
            the prompt of a question has exemplars, or ``DECOMPOSITIONS`` where it has none, since a model
            needs examples to write sub-questions.
    """

    actions: int = 4
    answers: int = 8
    chunk: int = 2
    depth: int = 5
    iterations: int = 10
    exploration: float = 1.0
    usefulness_weight: float = 0.5
    expected_confidence: float = 0.8
    top_p: float = 0.95
    shots: int | None = None
    name: str = "rap"
    short: ClassVar[Mapping[str, str]] = {"temperature": "temperature"}
    needs: ClassVar[frozenset[str]] = frozenset({"ids", "logits"})
    instead: ClassVar[str] = "questions and answers are sampled"

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "actions", "answers", "chunk", "depth", "iterations")
        for key in ("usefulness_weight", "expected_confidence"):
            real(key, getattr(self, key), least=0.0, most=1.0)
        if self.shots is not None:
            whole("shots", self.shots, least=1)
        real("exploration", self.exploration, least=0.0)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        root = Node()
        nodes = [root]  # in the order of their creation
        with suppress(BudgetSpent):  # the chains so far vote
            for iteration in range(self.iterations):
                leaf = select(root, self.exploration)
                if leaf.reward is None:
                    yield from self._visit(leaf, iteration, nodes, problem, context)
                while leaf.children:
                    leaf = max(leaf.children, key=lambda child: child.expected)
                    yield from self._visit(leaf, iteration, nodes, problem, context)
                path = [root, *leaf.chain]
                rewards = [node.reward or 0.0 for node in path]  # every one of them was visited
                for i, node in enumerate(path):
                    node.returns.append(fmean(rewards[i:]))

        def same(a: str | None, b: str | None) -> bool:
            return context.grader.equal(a, b, problem.answer_type)

        weighted = votes(root, same)
        answer = context.grader.vote([a for a, _ in weighted], problem.answer_type, [w for _, w in weighted])
        ends = [node for node in nodes if node.reward is not None and not node.children]
        ends.sort(key=lambda end: end.round)
        return Result(answer, tuple(map(_candidate, ends)), tuple(_describe_nodes(nodes)))

    def _visit(
        self, node: Node, iteration: int, nodes: list[Node], problem: Problem, context: Context
    ) -> Steps[None]:
        """Answer a node's question, find those that may follow and add them to ``nodes``."""
        stage, reward = nodes.index(node), 0.0
        if node.parent is not None:
            node.round = iteration
            yield from self._answer(node, problem, context, stage)
            reward = self._reward(node.useful, node.confidence)
        if END not in node.question:
            node.children = yield from self._next_questions(node, problem, context, stage)
            nodes += node.children
        node.reward = reward  # set last: a node that the budget cuts off does not end a chain

    def _reward(self, useful: float, confidence: float) -> float:
        return useful**self.usefulness_weight * confidence ** (1 - self.usefulness_weight)

    def _next_questions(
        self, node: Node, problem: Problem, context: Context, stage: int
    ) -> Steps[list[Node]]:
        """The different sub-questions that may follow ``node``, with their usefulness."""
        overall = overall_question(problem.question)
        final = f"{FINAL} {overall}"
        tokens: dict[str, int] = {}  # by question, in the order sampled
        chain = node.chain
        if len(chain) + 1 < self.depth:
            prompt = self._prompt("rap_question", problem, context, chain)
            completions = yield Generate(
                self._requests(prompt, range(self.actions), problem, context, "question", stage)
            )
            for completion in completions:
                question = _line(completion.text)
                if FINAL in question or question == overall:
                    question = final
                if question:
                    tokens.setdefault(question, completion.generated_tokens)
        if not tokens:
            tokens[final] = 0
        prompts = [self._prompt("rap_useful", problem, context, chain, asked=question) for question in tokens]
        usefulness = yield from ask_yes_no(prompts, context.engine.tokenizer, role="verifier")
        return [
            Node(question, useful, count, node, self._reward(useful, self.expected_confidence))
            for (question, count), useful in zip(tokens.items(), usefulness.tolist(), strict=True)
        ]

    def _answer(self, node: Node, problem: Problem, context: Context, stage: int) -> Steps[None]:
        """Give ``node`` its most frequent answer.

        Unparsed answers count as a separate answer if the answer is a number, and are left out otherwise.

        Raises:
            BudgetSpent: If the budget allows no answer.
        """
        kind = problem.answer_type
        if END not in node.question and kind not in ("number", "latex"):
            kind = "text"  # intermediate answers, for example before a yes or no, are of any kind

        prompt = self._prompt("rap_answer", problem, context, node.chain[:-1], asked=node.question)
        drawn: list[Completion] = []
        while True:
            numbers = range(len(drawn), min(len(drawn) + self.chunk, self.answers))
            new = yield Generate(self._requests(prompt, numbers, problem, context, "answer", stage))
            drawn += [completion for completion in new if completion.token_ids]  # the others cost too much
            if not drawn:
                raise BudgetSpent
            parsed = [read_answer(c.text, kind, context.grader) for c in drawn]
            groups = _groups(parsed, kind, context.grader, unparsed=problem.answer_type == "number")
            most = len(groups[0]) if groups else 0
            tied = len(groups) > 1 and len(groups[1]) == most
            ended = len(drawn) == self.answers or not new[-1].token_ids
            if ended or (most / len(drawn) >= SETTLED and not tied):
                break
        chosen = groups[0][0] if groups else 0
        node.answer, node.parsed = _line(drawn[chosen].text), parsed[chosen]
        node.confidence, node.drawn = most / len(drawn), len(drawn)
        node.tokens += drawn[chosen].generated_tokens

    def _prompt(
        self, kind: str, problem: Problem, context: Context, chain: Sequence[Node], **fields: str
    ) -> Prompt:
        earlier = [(node.question, node.answer) for node in chain]
        shots = self.shots or len(context.prompts.exemplars) or DECOMPOSITIONS
        return context.prompts.task(kind, problem, earlier, shots=shots, **fields)

    def _requests(
        self, prompt: Prompt, numbers: range, problem: Problem, context: Context, *stage: object
    ) -> list[Request]:
        """One request per sample, for a single line; ``numbers`` distinguish the samples of a stage."""
        return [
            prompt.request(
                max_new_tokens=self.max_new_tokens,
                stop=("\n",),
                sampling=self.sampling,
                seed=context.stream(problem.id, *stage, number),
            )
            for number in numbers
        ]


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


def overall_question(question: str) -> str:
    """The last sentence of ``question`` with a question mark, else its last sentence, on one line.

    >>> overall_question("Ada has 3.5 kg. She eats 1 kg. How much is left? Round down.")
    'How much is left?'
    """
    sentences = _SENTENCE_END.split(question.strip())
    asking = [sentence for sentence in sentences if sentence.endswith("?")]
    return _line((asking or sentences)[-1])


def read_answer(text: str, answer_type: str, grader: AnswerGrader) -> str | None:
    """The answer after the last "The answer is"; without this cue the answer that the grader reads."""
    _, cue, rest = text.rpartition(ANSWER_CUE)
    return grader.extract(f"Answer: {rest.lstrip(' :')}" if cue else text, answer_type)


def _line(text: str) -> str:
    return " ".join(text.split())


def _groups(
    parsed: Sequence[str | None], kind: str, grader: AnswerGrader, *, unparsed: bool
) -> list[list[int]]:
    """Groups of indices of equal answers, by size, then by first appearance.

    Unparsed answers form a group only if ``unparsed``.
    """
    groups = same_answers(parsed, grader, kind)
    without_answer = [i for i, answer in enumerate(parsed) if answer is None]
    if unparsed and without_answer:
        groups.append(without_answer)
    return sorted(groups, key=lambda group: (-len(group), group[0]))


def _candidate(end: Node) -> Candidate:
    """The chain that ends at ``end`` as a candidate."""
    # The answer has its own line, so that the record's text gives the same answer.
    text = end.answer if end.parsed is None else f"{end.answer}\nAnswer: {end.parsed}"
    return Candidate(
        text=text,
        answer=end.parsed,
        round=end.round,
        reward=sum(node.reward or 0.0 for node in end.chain) / len(end.chain),
        generated_tokens=sum(node.tokens for node in end.chain),
    )


def _describe_nodes(nodes: Sequence[Node]) -> list[dict[str, object]]:
    """An entry per node: its parent, its counts, its question, and after its visit its answer."""
    number = {node: i for i, node in enumerate(nodes)}
    entries = []
    for node, i in number.items():
        entry: dict[str, object] = {"node": i, "visits": len(node.returns), "q": node.value}
        if node.parent is not None:
            entry |= {"parent": number[node.parent], "question": node.question, "useful": node.useful}
            if node.reward is not None:
                entry |= {"answer": node.answer, "parsed": node.parsed, "confidence": node.confidence}
                entry |= {"drawn": node.drawn, "reward": node.reward, "round": node.round}
        entries.append(entry)
    return entries
