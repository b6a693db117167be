"""The model of the harness: ``hf`` whose generations are Soft Reasoning's, or another method's."""

from __future__ import annotations

import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.api import SoftReasoner
from soft_reasoning.configuration.compose import override
from soft_reasoning.configuration.options import Options, check_overrides, configured
from soft_reasoning.data.questions import Question
from soft_reasoning.engines.devices import choose_device
from soft_reasoning.engines.loading import explain
from soft_reasoning.engines.paths import resolve
from soft_reasoning.solution import Solution
from soft_reasoning.types import UserError

OF_HARNESS = frozenset(inspect.signature(HFLM.__init__).parameters) - {"self", "kwargs", "backend"}
REASONER = ("prompt", "answer_type", *Options.__annotations__)
"""Keyword arguments of ``SoftReasoner``."""

TO_TRANSFORMERS = (
    "attn_implementation", "device_map", "load_in_4bit", "load_in_8bit", "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_type", "bnb_4bit_use_double_quant",
)  # fmt: skip
"""What the harness's model hands on to ``from_pretrained``."""

_HFLM: Any = HFLM  # its decorator hides its type


class SoftReasoningLM(_HFLM):
    """The harness's ``hf`` model, whose ``generate_until`` is a method's: by default Soft Reasoning.

    Tokens, chat templates and log-likelihoods are those of ``hf``, whose code computes them.

    Args:
        pretrained: The name of a model or its folder; "demo" is the bundled one.
        question_field: The column of a task's rows that verifiers are shown as the question; by default
            ``question``. Where a prompt does not contain it they are shown the whole prompt.
        given: Arguments of the harness's ``hf``, keyword arguments of
            :class:`~soft_reasoning.SoftReasoner`, and overrides such as ``search.rounds=2``.

    Raises:
        UserError: In one line, for an argument that is not read and a model that cannot be loaded.

    Example:
        >>> lm = SoftReasoningLM("demo", method="cot")
        >>> lm_eval.simple_evaluate(lm, tasks=["gsm8k"], limit=10)
    """

    def __init__(self, pretrained: str = "demo", *, question_field: str | None = None, **given: Any) -> None:
        reasoner: dict[str, Any] = {name: given.pop(name) for name in REASONER if name in given}
        harness = {name: given.pop(name) for name in (*OF_HARNESS, *TO_TRANSFORMERS) if name in given}
        for name in given:
            group = re.split("[./]", name.lstrip("+~"))[0]
            if group in ("model", "engine", "dataset") and name != "engine.max_batch_tokens":
                raise UserError(
                    f"model_args: {name} is not read: the harness's arguments load the model (pretrained=, "
                    "dtype=, revision=, peft=, ...), and its task is the data set; leave it out"
                )
        overrides = [override(name, value) for name, value in given.items()]
        if isinstance(harness.get("think_end_token"), int):
            raise UserError("think_end_token: expected the token's text, got its id; give the text")
        check_overrides(overrides)
        shown = Options(**{k: v for k, v in reasoner.items() if k not in ("prompt", "answer_type")})
        configured(shown, overrides)  # a typing error is told before the model is loaded
        name = resolve(str(pretrained))
        try:
            super().__init__(name, backend="causal", **{"device": str(choose_device(None)), **harness})
        except Exception as error:  # any error of a foreign model is the reason to give
            raise UserError(explain(name, error)) from error
        self.question_field = question_field
        reasoner = {"answer_type": "number", **reasoner}
        self.reasoner = SoftReasoner(self.model, self.tokenizer, **reasoner, overrides=overrides)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the text of each request's solution; all of them share batches.

        Draws are seeded by the prompt. One that comes again, as with ``repeats``, has draws of its own.

        Raises:
            UserError: For generation arguments that the method cannot follow, in one line.
        """
        arguments: list[tuple[str, dict[str, Any]]] = [request.arguments for request in requests]
        questions: list[Question] = []
        indices, times = defaultdict[float | None, list[int]](list), Counter[str]()
        for i, (context, options) in enumerate(arguments):
            question, temperature = self._question(requests[i].doc, context, options)
            times[context] += 1
            name = context if times[context] == 1 else f"{context} [{times[context]}]"
            questions.append({**question, "id": name})
            indices[temperature].append(i)
        texts = [""] * len(requests)
        for temperature, places in indices.items():
            shown, chosen = not disable_tqdm and self.rank == 0, [questions[i] for i in places]
            solutions = self.reasoner.solve(chosen, progress=shown, temperature=temperature)
            for i, solution in zip(places, solutions, strict=True):
                text = text_of(solution, self.reasoner.context.grader, self.reasoner.answer_type)
                texts[i] = postprocess_generated_text(text, None, self.think_end_token)
                self.cache_hook.add_partial("generate_until", arguments[i], texts[i])
        return texts

    def _question(
        self, row: Mapping[str, Any], context: str, options: Mapping[str, Any]
    ) -> tuple[Question, float | None]:
        """A request as a question with the prompt that ``hf`` makes of it, and the temperature asked for."""
        read: dict[str, Any] = {**normalize_gen_kwargs(dict(options), self.max_gen_toks)}
        until, most, samples = (read.pop(name) for name in ("until", "max_gen_toks", "do_sample"))
        temperature = float(read.pop("temperature", 0.0))
        for name in read:
            raise UserError(
                f"generation_kwargs: expected until, max_gen_toks, do_sample, temperature, got {name}; leave "
                f"it out, or set it for the candidates in model_args (decoding=sampled,decoding.{name}=...)"
            )
        if most >= self.max_length:
            raise UserError(
                f"generation_kwargs: expected max_gen_toks below the model's context of {self.max_length} "
                f"tokens, got {most}"
            )
        eos = self.eot_token_id
        eos = None if eos is None else self.tokenizer.decode(eos, skip_special_tokens=False)
        ids, _ = self.tok_batch_encode(
            [context], left_truncate_len=self.max_length - most, truncation=bool(self.truncation)
        )
        question: Question = {
            "question": question_in(row, context, self.question_field), "prompt": ids[0].tolist(),
            "stop": handle_stop_sequences(until, eos=eos), "max_new_tokens": most,
        }  # fmt: skip
        return question, temperature if samples else None


def question_in(row: Mapping[str, Any], context: str, field: str | None) -> str:
    """Return what a verifier is asked about: the row's question, if it is part of ``context``.

    It is the whole context otherwise, so that a verifier sees nothing that is not in the prompt.

    Args:
        row: The row of the task's data.
        context: The prompt.
        field: The column of the question; None is ``question`` where there is one.

    Raises:
        UserError: If the row has no ``field``.
    """
    text = row.get("question" if field is None else field)
    if field is not None and not isinstance(text, str):
        known = ", ".join(map(str, row)) or "none"
        raise UserError(
            f"question_field: expected a column of the task's rows with a text ({known}), got {field}"
        )
    text = text.strip() if isinstance(text, str) else ""
    return text if text and text in context else context


def text_of(solution: Solution, grader: AnswerGrader, answer_type: str) -> str:
    """Return the text that the harness's filters read.

    It is the chosen candidate's. A final answer that only the verifier wrote comes with the verifier's text,
    and after it in the words in which the best candidate gave its answer, since a filter such as
    ``#### (.*)`` looks for the form that the task's prompt asks for.
    """
    answer, text = solution.answer, solution.text
    if answer is None or any(candidate.answer == answer for candidate in solution.candidates):
        return text
    for candidate in sorted(solution.candidates, key=lambda candidate: -candidate.rank):
        place = grader.locate(candidate.text, answer_type)
        if candidate.answer is not None and place is not None:
            line = candidate.text[: place[0]].rpartition("\n")[2]
            return f"{text.rstrip()}\n{line}{answer}"
    return text
