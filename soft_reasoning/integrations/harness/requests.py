"""From the harness's requests to questions, and from solutions to the texts that its filters read."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lm_eval.api.instance import Instance
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.data.questions import Question
from soft_reasoning.solution import Solution
from soft_reasoning.types import UserError

READ = ("until", "max_gen_toks", "do_sample", "temperature")
"""Generation arguments that are read; ``normalize_gen_kwargs`` makes ``max_gen_toks`` of its other names."""


class Generation(NamedTuple):
    """How a request is to be completed; ``stop`` holds the end-of-sequence token's text, too.

    ``temperature`` None leaves the sampling to the method.
    """

    stop: tuple[str, ...]
    max_new_tokens: int
    temperature: float | None


def generation_of(given: Mapping[str, Any], eos: str | None, max_gen_toks: int) -> Generation:
    """Return what the generation arguments of a request ask for.

    Args:
        given: The arguments, of the task or of ``--gen_kwargs``.
        eos: The text of the end-of-sequence token.
        max_gen_toks: Most tokens where ``given`` does not say.

    Raises:
        UserError: For an argument that is not read, or a value that makes no sense.
    """
    read: dict[str, Any] = {**normalize_gen_kwargs(dict(given), max_gen_toks)}
    unknown = [name for name in read if name not in READ]
    if unknown:
        raise UserError(
            f"generation_kwargs: expected {', '.join(READ)}, got {unknown[0]}; leave it out, or set how "
            f"candidates are sampled in model_args (decoding=sampled,decoding.{unknown[0]}=...)"
        )
    stop = handle_stop_sequences(read["until"], eos=eos)
    if not all(isinstance(text, str) and text for text in stop):
        raise UserError(f"generation_kwargs: expected until to hold texts, none of them empty, got {stop}")
    most, temperature = read["max_gen_toks"], float(read.get("temperature", 0.0))
    if most < 1:
        raise UserError(f"generation_kwargs: expected max_gen_toks of at least 1, got {most}")
    if read["do_sample"] and not (temperature > 0 and math.isfinite(temperature)):
        raise UserError(
            f"generation_kwargs: expected a temperature above 0 with do_sample=True, got {temperature}"
        )
    return Generation(tuple(stop), most, temperature if read["do_sample"] else None)


def questions_of(
    requests: Sequence[Instance],
    generations: Sequence[Generation],
    encode: Callable[[str, int], list[int]],
    field: str | None,
) -> list[Question]:
    """Return the question of each request, asked with the request's own prompt.

    Random draws are seeded by the prompt; a prompt that comes again, as with ``repeats``, gets draws of its
    own.

    Args:
        requests: The requests.
        generations: How each is completed.
        encode: Returns the token ids of a context that leave room for a number of new tokens.
        field: The column of a row that holds its question; None is ``question`` where there is one.

    Raises:
        UserError: If a row has no ``field``.
    """
    seen: Counter[str] = Counter()
    questions: list[Question] = []
    for request, (stop, most, _) in zip(requests, generations, strict=True):
        context = request.args[0]
        seen[context] += 1
        name = context if seen[context] == 1 else f"{context} [{seen[context]}]"
        ids = encode(context, most)
        if not ids:
            raise UserError("expected a prompt of at least one token, got an empty context; check the task")
        text = question_in(request.doc, context, field)
        questions.append({"question": text, "id": name, "prompt": ids, "stop": stop, "max_new_tokens": most})
    return questions


def question_in(row: Any, context: str, field: str | None) -> str:
    """Return what a verifier is asked about: the row's question, if it is part of ``context``.

    It is the whole context otherwise, so that a verifier sees nothing that is not in the prompt.

    Raises:
        UserError: If the row has no ``field``.
    """
    row = row if isinstance(row, Mapping) else {}
    if field is not None and not isinstance(row.get(field), str):
        known = ", ".join(map(str, row)) or "none"
        raise UserError(
            f"question_field: expected a column of the task's rows with a text ({known}), got {field}"
        )
    text = row.get("question" if field is None else field)
    return text.strip() if isinstance(text, str) and text.strip() and text.strip() in context else context


def text_of(solution: Solution, grader: AnswerGrader, answer_type: str) -> str:
    """Return the text that the harness's filters read.

    It is the chosen candidate's. A final answer that only the verifier wrote comes with the verifier's text,
    and after it in the sentence in which the best candidate gave its answer, since a filter such as
    ``#### (.*)`` looks for the form that the task's prompt asks for.
    """
    answer, text = solution.answer, solution.text
    if answer is None or any(candidate.answer == answer for candidate in solution.candidates):
        return text
    for candidate in sorted(solution.candidates, key=lambda candidate: -candidate.rank):
        place = grader.locate(candidate.text, answer_type)
        if candidate.answer is not None and place is not None:
            before = re.split(r"\n|\. ", candidate.text[: place[0]])[-1]
            after = re.match(r"[^.\n]*\.?", candidate.text[place[1] :])
            closing = f"{before}{answer}{after[0] if after else ''}"
            stated = re.search(r"\d", before) or text.rstrip().endswith(closing.strip())
            return text if stated else f"{text.rstrip()}\n{closing}"
    return text
