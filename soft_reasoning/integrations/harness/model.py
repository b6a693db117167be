"""A model of the harness: ``hf`` with generations by Soft Reasoning or another method."""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.api import SoftReasoner
from soft_reasoning.configuration.options import Options, check_overrides, configured
from soft_reasoning.configuration.overrides import Override
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
    "attn_implementation",
    "device_map",
    "load_in_4bit",
    "load_in_8bit",
    "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant",
)
"""Arguments that the harness's model passes on to ``from_pretrained``."""

_HFLM: Any = HFLM  # its decorator hides its type


class SoftReasoningLM(_HFLM):
    """The harness's ``hf`` model, with ``generate_until`` by a method, by default Soft Reasoning.

    Tokens, chat templates and log-likelihoods are those of ``hf``, whose code computes them.

    Args:
        pretrained: The name of a model or its folder; "demo" is the bundled model.
        question_field: The column of a task's rows that verifiers read as the question; by default
            ``question``. If a prompt does not contain it, they read the whole prompt.
        args: Arguments of the harness's ``hf``, keyword arguments of
            :class:`~soft_reasoning.SoftReasoner`, and overrides such as ``search.rounds=2``.

    Raises:
        UserError: For an argument that is not read, or a model that cannot be loaded.

    Example:
        >>> lm = SoftReasoningLM("demo", method="cot")
        >>> lm_eval.simple_evaluate(lm, tasks=["gsm8k"], limit=10)
    """

    def __init__(self, pretrained: str = "demo", *, question_field: str | None = None, **args: Any) -> None:
        reasoner: dict[str, Any] = {name: args.pop(name) for name in REASONER if name in args}
        harness = {name: args.pop(name) for name in (*OF_HARNESS, *TO_TRANSFORMERS) if name in args}
        overrides = [str(Override.of(name, value)) for name, value in args.items()]
        for override in check_overrides(overrides):
            if override.root in ("model", "engine", "dataset") and override.key != "engine.max_batch_tokens":
                raise UserError(
                    f"model_args: {override.key} is not read: the harness's arguments load the model "
                    "(pretrained=, dtype=, revision=, peft=, ...), and its task is the data set; leave it out"
                )
        if isinstance(harness.get("think_end_token"), int):
            raise UserError("think_end_token: expected the token's text, got its id; give the text")
        call = Options(**{k: v for k, v in reasoner.items() if k not in ("prompt", "answer_type")})
        configured(call, overrides)  # reports a typing error before loading
        name = resolve(str(pretrained))
        try:
            super().__init__(name, backend="causal", **{"device": str(choose_device(None)), **harness})
        except Exception as error:  # a model's code may raise any error
            raise UserError(explain(name, error)) from error
        self.question_field = question_field
        reasoner = {"answer_type": "number", **reasoner}
        self.reasoner = SoftReasoner(self.model, self.tokenizer, **reasoner, overrides=overrides)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the text of each request's solution; all requests share batches.

        Draws are seeded by the prompt. A repeated prompt, as with ``repeats``, has different draws.

        Raises:
            UserError: For generation arguments that the method does not support.
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
        for temperature, members in indices.items():
            progress, group = not disable_tqdm and self.rank == 0, [questions[i] for i in members]
            solutions = self.reasoner.solve(group, progress=progress, temperature=temperature)
            for i, solution in zip(members, solutions, strict=True):
                text = answer_text(solution, self.reasoner.context.grader, self.reasoner.answer_type)
                texts[i] = postprocess_generated_text(text, None, self.think_end_token)
                self.cache_hook.add_partial("generate_until", arguments[i], texts[i])
        return texts

    def _question(
        self, row: Mapping[str, Any], context: str, options: Mapping[str, Any]
    ) -> tuple[Question, float | None]:
        """The request's question, with the prompt that ``hf`` builds for it, and its temperature."""
        arguments: dict[str, Any] = {**normalize_gen_kwargs(dict(options), self.max_gen_toks)}
        until, limit, samples = (arguments.pop(name) for name in ("until", "max_gen_toks", "do_sample"))
        temperature = float(arguments.pop("temperature", 0.0))
        for name in arguments:
            raise UserError(
                f"generation_kwargs: expected until, max_gen_toks, do_sample, temperature, got {name}; leave "
                f"it out, or set it for the candidates in model_args (decoding=sampled,decoding.{name}=...)"
            )
        if limit >= self.max_length:
            raise UserError(
                f"generation_kwargs: expected max_gen_toks below the model's context of {self.max_length} "
                f"tokens, got {limit}"
            )
        eos = self.eot_token_id
        eos = None if eos is None else self.tokenizer.decode(eos, skip_special_tokens=False)
        ids, _ = self.tok_batch_encode(
            [context], left_truncate_len=self.max_length - limit, truncation=bool(self.truncation)
        )
        question: Question = {
            "question": question_in(row, context, self.question_field),
            "prompt": ids[0].tolist(),
            "stop": handle_stop_sequences(until, eos=eos),
            "max_new_tokens": limit,
        }
        return question, temperature if samples else None


def question_in(row: Mapping[str, Any], context: str, field: str | None) -> str:
    """Return the question that a verifier reads: the row's question, if it is part of ``context``.

    Otherwise it is the whole context, so that a verifier sees nothing that is not in the prompt.

    Args:
        row: The row of the task's data.
        context: The prompt.
        field: The column of the question; None is ``question`` if there is such a column.

    Raises:
        UserError: If the row has no ``field``.
    """
    text = row.get("question" if field is None else field)
    if field is not None and not isinstance(text, str):
        columns = ", ".join(map(str, row)) or "none"
        raise UserError(
            f"question_field: expected a column of the task's rows with a text ({columns}), got {field}"
        )
    text = text.strip() if isinstance(text, str) else ""
    return text if text and text in context else context


def answer_text(solution: Solution, grader: AnswerGrader, answer_type: str) -> str:
    """Return the text that the harness's filters read.

    It is the chosen candidate's text. If only the verifier wrote the final answer, it is the verifier's text,
    and then the answer in the format of the best candidate, since a filter such as ``#### (.*)`` looks for
    the format that the task's prompt requests.
    """
    answer, text = solution.answer, solution.text
    if answer is None or any(candidate.answer == answer for candidate in solution.candidates):
        return text
    for candidate in sorted(solution.candidates, key=lambda candidate: -candidate.rank):
        span = grader.locate(candidate.text, answer_type)
        if candidate.answer is not None and span is not None:
            line = candidate.text[: span[0]].rpartition("\n")[2]
            return f"{text.rstrip()}\n{line}{answer}"
    return text
