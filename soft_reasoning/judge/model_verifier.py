"""The same model judges a round's candidates, or another model does (paper, "Optimisation Objective").

A :class:`ModelVerifier` combines a presentation (candidates together, one by one, unseen) and a judgement (a
fresh solution, a named choice); the registry names the combinations.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from soft_reasoning.answers import FREE, AnswerGrader
from soft_reasoning.checks import OptionError, choice, counts, real, whole
from soft_reasoning.engine.text import prompt_text
from soft_reasoning.judge.reward import coherence
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.types import MAX_NEW_TOKENS, Candidate, Completion, Problem, Prompt, Sampling, UserError

log: logging.Logger = logging.getLogger(__name__)

PRESENTATIONS = ("together", "one_by_one", "unseen", "with_analyses")
SHOWN = ("reasoning", "answer")
CONFIDENCES = ("none", "sequence_prob", "verdict_prob")
ALTERNATIVES = 10
"""Number of likeliest tokens among which 1, 0 and None are looked for."""


@dataclass(frozen=True)
class FreshSolution:
    """The model writes a new solution; candidates that agree with its answer are correct.

    ``writes_answer``: whether the text is a solution with an answer, which may vote.
    """

    writes_answer: ClassVar[bool] = True

    def complete(self, text: str) -> bool:
        """Whether a text that was cut at its length already holds the verdict."""
        return "\n" in text.partition("Answer:")[2].lstrip()

    def read(self, text: str, problem: Problem, grader: AnswerGrader) -> str | None:
        """Return the answer of the model's solution, or None if it writes none."""
        return grader.extract(text, problem.answer_type, problem.question)

    def scores(
        self, text: str, candidates: Sequence[Candidate], problem: Problem, grader: AnswerGrader, first: int
    ) -> list[float]:
        """Return 1 for each candidate that ``text`` calls correct, else 0.

        ``first`` is the number of the first candidate in the prompt.
        """
        kind = problem.answer_type
        answer = self.read(text, problem, grader)
        return [float(answer is not None and grader.equal(c.answer, answer, kind)) for c in candidates]


@dataclass(frozen=True)
class NamedChoice:
    """The model writes the numbers of the correct candidates, or None, on its last ``Correct:`` line.

    A candidate alone in its prompt counts as correct if the first 0 or 1 of that line is 1. If the prompt
    numbers candidates from 0, it is named, too.
    """

    writes_answer: ClassVar[bool] = False

    def complete(self, text: str) -> bool:
        return "\n" in text.partition("Correct:")[2] or "\n" in text.strip()

    def read(self, text: str, problem: Problem, grader: AnswerGrader) -> str | None:
        return None

    def scores(
        self, text: str, candidates: Sequence[Candidate], problem: Problem, grader: AnswerGrader, first: int
    ) -> list[float]:
        named = verdict_numbers(text)
        if len(candidates) == first == 1:
            return [float(next((number for number in named if number in (0, 1)), 0))]
        return [float(i in named) for i in range(first, first + len(candidates))]


class Review(NamedTuple):
    """What the model wrote after one prompt.

    Attributes:
        completion: The completion.
        text: Its text; None if it was cut before its verdict.
        weight: Its weight by confidence.
        right: The probability of the verdict 1 on its only candidate, if it was read.
    """

    completion: Completion
    text: str | None
    weight: float
    right: float | None


@dataclass(frozen=True)
class ModelVerifier:
    """A model judges the candidates: ``presentation`` shows them, ``judgement`` reads the model's text.

    Args:
        name: The name of its wording, an entry of ``prompt.wording.reviews``.
        presentation: How candidates are shown: ``together`` in one prompt, ``one_by_one`` in a prompt each,
            ``unseen`` not at all (the prompt is the problem, a control), ``with_analyses`` together, after
            the verifier's texts of earlier rounds (the public code).
        judgement: How scores are read from the text.
        samples: Judgements per prompt; a score is the share of them that call the candidate correct.
        temperature: Sampling temperature of the judgements.
        show: ``reasoning`` shows each candidate's text, ``answer`` only its parsed answer. If the context
            has no room for all, the last candidates are not shown; a fresh solution is still compared with
            them, and a judge that names candidates does not judge them.
        shots: Worked reviews before the candidates; None uses all that the prompt has and the context
            allows.
        confidence: The weight of each judgement, and of its answer in a final vote, by the model's
            probability of its text. ``sequence_prob`` is the product over its tokens, and ``none`` is 1.
            ``verdict_prob``, for a judge of one candidate at a time, scores it by the
            probability of 1 against 0 and None at the verdict; for most judges of mathematics such short
            verdicts match or beat long reviews (SLMJury, arXiv 2606.07810).
        model: Another model as the judge (a name of ``conf/model`` or a path), whose errors differ if it is
            of another family. None uses the run's model.
        max_new_tokens: Maximum number of tokens per judgement; one cut before its verdict does not count.

    Raises:
        UserError: For a value out of its range.

    Example:
        >>> ModelVerifier(name="single_judge", presentation="one_by_one", judgement=NamedChoice())
    """

    name: str = "multi_generate"
    presentation: str = "together"
    judgement: FreshSolution | NamedChoice = field(default_factory=FreshSolution)
    samples: int = 1
    temperature: float = 0.0
    show: str = "reasoning"
    shots: int | None = None
    confidence: str = "none"
    model: str | None = None
    max_new_tokens: int = MAX_NEW_TOKENS

    def __post_init__(self) -> None:
        counts(self, "samples", "max_new_tokens")
        real("temperature", self.temperature, least=0.0)
        if self.samples > 1:
            fix = "several samples of temperature 0 are equal"
            real("temperature", self.temperature, above=0.0, fix=fix)
        if self.shots is not None:
            whole("shots", self.shots, least=0)
        choice("presentation", self.presentation, PRESENTATIONS)
        choice("show", self.show, SHOWN)
        choice("confidence", self.confidence, CONFIDENCES)
        alone = self.presentation == "one_by_one" and not self.answers_itself
        if self.confidence == "verdict_prob" and not alone:
            raise OptionError(
                "confidence",
                "expected another value for a verifier that does not judge each candidate alone, got "
                "verdict_prob; use verifier=probability",
            )

    @property
    def needs(self) -> set[str]:
        """What it needs of an engine."""
        return set() if self.confidence == "none" else {"logprobs"}

    @property
    def answers_itself(self) -> bool:
        """Whether it writes solutions with answers, which may vote."""
        return self.judgement.writes_answer

    @property
    def shows_candidates(self) -> bool:
        """Whether its prompts show candidates."""
        return self.presentation != "unseen"

    def answer_alone(
        self, problem: Problem, context: Context
    ) -> Steps[list[tuple[Completion, str | None, float]]]:
        """Ask without candidates; return each sample's completion, answer and weight."""
        judge = context.judge(self.model)
        prompt, _ = self._prompt(problem, (), judge, ())
        [reviews] = yield from self._ask(problem, [prompt], judge, stage="alone")
        return [(r.completion, self._answer(r, problem, context), r.weight) for r in reviews]

    def verify(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Steps[Verdict]:
        if self.answers_itself and problem.answer_type in FREE:  # no two texts would agree
            name = f"{self.name.partition('_')[0]}_judge"
            if not self.shows_candidates:
                raise UserError(f"verifier={self.name}: expected one that sees the answers; use single_judge")
            chooser = replace(self, name=name, judgement=NamedChoice())
            return (yield from chooser.verify(problem, candidates, context, earlier))
        answered = [i for i, c in enumerate(candidates) if c.answer is not None]
        scores: list[float | None] = [0.0] * len(candidates)
        agreement: list[float | None] = [0.0] * len(candidates)
        if not answered and self.shows_candidates:
            return Verdict(tuple(scores))
        judge = context.judge(self.model)
        groups = [[i] for i in answered] if self.presentation == "one_by_one" else [answered]
        judged = [[candidates[i] for i in group] for group in groups]
        prompts, shown = zip(*(self._prompt(problem, some, judge, earlier) for some in judged), strict=True)
        reviews = yield from self._ask(problem, prompts, judge, stage=f"round-{len(earlier)}")
        first = judge.prompts.wording.review(self.name).first if self.shows_candidates else 1
        for group, some, count, written in zip(groups, judged, shown, reviews, strict=True):
            complete = [
                (review, self.judgement.scores(review.text, some, problem, context.grader, first))
                for review in written
                if review.text is not None
            ]
            for place, i in enumerate(group):
                seen = complete if self.answers_itself or place < count else []
                shares = [share[place] for _, share in seen]
                weighed = [
                    review.weight * share[place] if review.right is None else review.right
                    for review, share in seen
                ]
                agreement[i], scores[i] = (fmean(shares), fmean(weighed)) if seen else (None, None)
        every = [review for written in reviews for review in written]
        voting = every if self.answers_itself else []
        return Verdict(
            tuple(scores),
            tuple(self._answer(review, problem, context) for review in voting),
            tuple(review.completion.text for review in every),
            tuple(review.weight for review in voting),
            agreement=tuple(agreement),
            prompts=tuple(
                prompt_text(judge.engine.tokenizer, prompt.ids, prompt.messages)
                for prompt in prompts
                for _ in range(self.samples)
            ),
        )

    def _answer(self, review: Review, problem: Problem, context: Context) -> str | None:
        return None if review.text is None else self.judgement.read(review.text, problem, context.grader)

    def _ask(
        self, problem: Problem, prompts: Sequence[Prompt], judge: Context, *, stage: str
    ) -> Steps[list[list[Review]]]:
        """Return the model's ``samples`` reviews after each of ``prompts``."""
        same: dict[Prompt, int] = {}  # equal greedy prompts are generated once
        places = [same.setdefault(p, g) if not self.temperature else g for g, p in enumerate(prompts)]
        samples = [(g, n) for g in dict.fromkeys(places) for n in range(self.samples)]
        requests = [
            prompts[g].request(
                max_new_tokens=self.max_new_tokens,
                role="verifier",
                sampling=Sampling(self.temperature),
                seed=judge.stream(problem.id, self.name, f"{stage}-{g}", n),
                top_logprobs=ALTERNATIVES if self.confidence == "verdict_prob" else 0,
            )
            for g, n in samples
        ]
        completions = yield Generate(requests, judge.engine if self.model else None)
        reviews: dict[int, list[Review]] = {}
        for (g, _), completion in zip(samples, completions, strict=True):
            reviews.setdefault(g, []).append(self._review(completion, judge.engine.tokenizer))
        return [reviews[place] for place in places]

    def _review(self, completion: Completion, tokenizer: Any) -> Review:
        text, weight, right = completion.text, 1.0, None
        if self.confidence == "sequence_prob":
            weight = math.exp(coherence(completion, "sum_logprob"))
        elif self.confidence == "verdict_prob":
            right = verdict_probability(completion, tokenizer)
        cut = completion.cut and not self.judgement.complete(text)
        return Review(completion, None if cut else text, weight, right)

    def _prompt(
        self, problem: Problem, shown: Sequence[Candidate], judge: Context, earlier: Sequence[Verdict]
    ) -> tuple[Prompt, int]:
        """The prompt, and how many of the candidates ``shown`` it has room for."""
        problem, prompts = problem.without_gold(), judge.prompts
        if not self.shows_candidates:
            return prompts.solve(problem), len(shown)
        analyses = self.presentation == "with_analyses"
        before = [text for verdict in earlier for text in verdict.texts] if analyses else []
        brief = self.show == "answer"
        room = judge.engine.context_length - self.max_new_tokens
        review = partial(prompts.review, self.name, problem, shots=self.shots, brief=brief, room=room)
        whole = prompts.neutral  # free text in the middle of a sentence would be judged as such
        texts = [prompts.split(c.text if whole else c.written, problem)[1] for c in shown]
        texts = [f"Answer: {c.answer}" for c in shown] if brief else texts
        prompt, count = fitting(review, before, texts, room)
        if count < len(texts):
            warn_of_bound(self.name, judge.engine.context_length)
        return prompt, count


def fitting(
    show: Callable[[Sequence[str]], Prompt], earlier: Sequence[str], solutions: Sequence[str], room: int
) -> tuple[Prompt, int]:
    """Return the prompt that ``show`` builds from ``earlier`` and ``solutions``, and how many of the latter.

    If they take more than ``room`` tokens, the first of ``earlier`` are left out, then the last of
    ``solutions``, so that the remaining solutions keep their numbers.
    """
    before, shown = list(earlier), list(solutions)
    while len((prompt := show([*before, *shown])).ids) > room and len(before) + len(shown) > 1:
        if before:
            before.pop(0)
        else:
            shown.pop()
    return prompt, len(shown)


@cache
def warn_of_bound(kind: str, context_length: int) -> None:
    """Warn once per process rather than in every round of every problem."""
    log.warning(
        "verifier=%s: the model's context of %d tokens has no room for all candidates of a round, so the "
        "last are not shown; lower k or use verifier.show=answer",
        kind,
        context_length,
    )


def verdict_numbers(text: str) -> tuple[int, ...]:
    """Return the integers of up to three digits on the last ``Correct:`` line of ``text``, in order.

    Without such a line the first line is read, since the prompt may end in ``Correct:``. Text without digits,
    such as "None", gives no integers.
    """
    _, mark, rest = text.rpartition("Correct:")
    line = (rest if mark else text.strip()).partition("\n")[0]
    return tuple(int(number) for number in re.findall(r"(?<!\d)\d{1,3}(?!\d)", line)[:64])


def verdict_probability(completion: Completion, tokenizer: Any) -> float | None:
    """Return the probability of 1 against 0 and None at the verdict.

    The verdict is the first token other than white space, after the last "Correct:" if there is such a mark.
    None if the text ends before it, or if none of the likeliest tokens there is 1, 0 or None.
    """
    words = [tokenizer.decode([token]).strip() for token in completion.token_ids]
    marks = [i for i, word in enumerate(words) if word.endswith(":")]
    start = next((i + 1 for i in reversed(marks) if "Correct" in "".join(words[max(0, i - 3) : i + 1])), 0)
    place = next((i for i in range(start, len(words)) if words[i]), None)
    if place is None or place >= len(completion.top_logprobs):
        return None
    top = completion.top_logprobs[place]
    shares = {"1": 0.0, "0": 0.0, "None": 0.0}
    for token, logprob in zip(top.ids, top.logprobs, strict=True):
        word = tokenizer.decode([token]).strip()
        if word in shares:
            shares[word] += math.exp(logprob)
    total = sum(shares.values())
    return shares["1"] / total if total else None
