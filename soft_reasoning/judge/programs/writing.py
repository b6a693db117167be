"""The model writes programs for a question, and the sandbox runs them.

A program is a function ``solution()`` written from the question alone (program-aided language models, Gao et
al., arXiv 2211.10435). Its prompt is the task ``program`` of the wording.
"""

from __future__ import annotations

import ast
import logging
import math
import re
import textwrap
import warnings
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cache
from typing import ClassVar

from soft_reasoning.answers import AnswerGrader, read_value
from soft_reasoning.answers.choice import options
from soft_reasoning.checks import counts
from soft_reasoning.engine.text import prompt_text
from soft_reasoning.judge.programs.sandbox import Outcome, Sandbox
from soft_reasoning.prompts import Wording
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.schedule.solutions import SamplingOptions
from soft_reasoning.types import GREEDY, Candidate, Completion, Problem, UserError

log: logging.Logger = logging.getLogger(__name__)

TASK = "program"
"""The name of the wording in ``prompt.wording.tasks``."""
NOT_COMPUTED = "programs: expected questions that a program can compute, got "
INSTEAD = "verifier=single_judge or method=self_consistency"
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^`\n]*$\n?", re.MULTILINE)
_DEFINED = "def solution("
MOST_DIGITS = 100
MOST_CHARACTERS = 200
KINDS = ("number", "boolean", "choice", "latex", "text")
"""Types of answers that a program can compute."""


@dataclass(frozen=True)
class Program:
    """A program and its outcome.

    Attributes:
        code: The program.
        answer: The answer that its value stands for, or None.
        error: Why there is no answer.
        prompt: The text of its prompt.
        completion: The model's completion.
    """

    code: str
    answer: str | None
    error: str | None
    prompt: str
    completion: Completion

    @property
    def text(self) -> str:
        """The program, any error, and its answer on the last line, for readers."""
        end = f"Answer: {self.answer}" if self.error is None else f"Error: {self.error}\nAnswer: no answer"
        return f"```python\n{self.code}\n```\n{end}"

    @property
    def candidate(self) -> Candidate:
        """The program as a candidate of the first round."""
        return Candidate(
            self.text,
            self.answer,
            round=0,
            computed=True,
            generated_tokens=self.completion.generated_tokens,
            finish_reason=self.completion.finish_reason,
            token_ids=self.completion.token_ids,
            logprobs=self.completion.logprobs,
        )


@dataclass(frozen=True, kw_only=True)
class Programs(SamplingOptions):
    """How programs are written and run; the first is greedy, the others are sampled.

    Args:
        samples: Programs per question. The other options are those of
            :class:`~soft_reasoning.schedule.solutions.SamplingOptions`.
        model: Another model that writes them, a name of ``conf/model`` or a path; None uses the run's model.
        sandbox: Where they run.

    Raises:
        OptionError: For a value out of its range.
    """

    samples: int = 4
    model: str | None = None
    sandbox: Sandbox = field(default_factory=Sandbox)
    instead: ClassVar[str] = "samples=1 writes the greedy program only"

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "samples")

    def check_wording(self, wording: Wording) -> None:
        """Reject wording that does not ask for programs, and a missing sandbox.

        Raises:
            UserError: In one line.
        """
        if TASK not in wording.tasks:
            raise UserError(
                f"programs: expected a prompt with prompt.wording.tasks.{TASK} and a model that follows it, "
                "which the bundled model cannot (+experiment=real_model has one); take another with "
                f"prompt=math, or {INSTEAD}"
            )
        self.sandbox.check()

    def write(self, problem: Problem, context: Context, *, role: str) -> Steps[list[Program]]:
        """Write and run the programs of a question.

        There are none, as a warning says once, for a question whose type of answer the prompt asks no
        programs for. If no question can have such a prompt, :meth:`check_wording` has refused the run.
        """
        kind, judge = problem.answer_type, context.judge(self.model)
        if kind not in KINDS or TASK not in judge.prompts.wording.tasks:
            _warn_of_words(kind)
            return []
        prompt = judge.prompts.task(TASK, problem.without_gold())
        requests = [
            prompt.request(
                max_new_tokens=self.max_new_tokens,
                role=role,
                sampling=self.sampling if i else GREEDY,
                seed=context.stream(problem.id, TASK, i),
            )
            for i in range(self.samples)
        ]
        completions = yield Generate(requests, judge.engine if self.model else None)
        cue = judge.prompts.wording.tasks[TASK].cue
        codes = [code_of(cue + completion.text) for completion in completions]
        shown = prompt_text(judge.engine.tokenizer, prompt.ids, prompt.messages)
        programs: list[Program] = []
        for completion, code, outcome in zip(completions, codes, self.sandbox.run(codes), strict=True):
            answer, error = answer_of(outcome, problem, context.grader)
            programs.append(Program(code, answer, error, shown, completion))
        return programs


@cache
def _warn_of_words(kind: str) -> None:
    """Warn once per process rather than for every question."""
    log.warning("programs: questions with an answer of type %s are answered in words alone", kind)


def code_of(text: str) -> str:
    """Return the program of ``text``: the first of its parts between fences that defines ``solution()``.

    A model may start over after the cue, or not indent what follows it. Of these forms the first one that is
    Python counts.
    """
    parts = [part for part in _FENCE.split(text.replace("\r\n", "\n")) if _DEFINED in part]
    for part in parts:
        before, _, rest = part.partition(_DEFINED)
        line, _, body = rest.partition("\n")
        indented = f"{before}{_DEFINED}{line}\n{textwrap.indent(body, '    ')}"
        for form in (part, before + body, indented):
            if _DEFINED in form and _is_python(form):
                return form.rstrip()
    return (parts or [text])[0].rstrip()


def _is_python(code: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def answer_of(outcome: Outcome, problem: Problem, grader: AnswerGrader) -> tuple[str | None, str | None]:
    """Return the answer that a program's value is, or None and the reason."""
    if outcome.error is not None:
        return None, outcome.error
    kind = problem.answer_type
    answer = as_answer(outcome.value, kind, problem.question)
    if answer is None:
        return None, f"expected an answer of type {kind}, got a value of type {type(outcome.value).__name__}"
    return grader.of_value(answer, kind), None


def as_answer(value: object, answer_type: str, question: str = "") -> str | None:
    """Return ``value`` as an answer of one of ``KINDS``, or None if it is not one.

    A number is a whole or real number, a boolean is True or False, a choice is an option's index from 0, and
    a text may be a date. A string is the answer that it names, whatever the type. NaN, infinity, complex
    numbers, None, containers and objects are not answers.

    >>> as_answer(0.1 + 0.2, "number"), as_answer("3/4", "number"), as_answer(True, "number")
    ('0.3', '3/4', None)
    >>> as_answer(1, "choice"), as_answer(False, "boolean"), as_answer([3], "number")
    ('B', 'False', None)
    """
    if isinstance(value, str):
        text = " ".join(value[: 2 * MOST_CHARACTERS].split())
        short = 0 < len(text) <= MOST_CHARACTERS and len(value) <= 2 * MOST_CHARACTERS
        shown = text.startswith("<") and " at 0x" in text  # as the sandbox shows a function
        return read_value(text, answer_type, question) if short and not shown else None
    if isinstance(value, bool):
        return str(value) if answer_type in ("boolean", "text") else None
    if isinstance(value, date):
        return value.isoformat() if answer_type == "text" else None
    if answer_type == "boolean":
        return None
    if answer_type == "choice":
        letter = chr(ord("A") + value) if isinstance(value, int) and 0 <= value < 26 else None
        return letter if letter in (options(question) or {letter}) else None
    return _number(value)


def _number(value: object) -> str | None:
    """A finite number of at most ``MOST_DIGITS`` digits, without an exponent."""
    if isinstance(value, int):
        return str(value) if abs(value) < 10**MOST_DIGITS else None
    if isinstance(value, Decimal):
        value = float(value) if value.is_finite() else math.nan  # a signalling NaN has no float
    if not isinstance(value, float) or not math.isfinite(value) or abs(value) >= 10.0**MOST_DIGITS:
        return None
    if value.is_integer():
        return str(int(value))
    text = f"{Decimal(f'{value:.12g}'):f}"  # 0.1 + 0.2 is 0.3
    return text if len(text) <= MOST_DIGITS else "0"
