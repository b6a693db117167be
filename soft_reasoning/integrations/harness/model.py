"""The model of the harness: ``hf`` whose generations are Soft Reasoning's, or another method's."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import postprocess_generated_text

from soft_reasoning.api import SoftReasoner
from soft_reasoning.configuration.compose import override
from soft_reasoning.configuration.options import Options, check_overrides, configured
from soft_reasoning.engines.devices import device_of
from soft_reasoning.engines.loading import why
from soft_reasoning.engines.paths import resolve
from soft_reasoning.integrations.harness.requests import generation_of, questions_of, text_of
from soft_reasoning.types import UserError

log: logging.Logger = logging.getLogger(__name__)

OF_HARNESS = frozenset(inspect.signature(HFLM.__init__).parameters) - {"self", "kwargs", "backend"}
REASONER = ("prompt", "answer_type", *Options.__annotations__)
"""Keyword arguments of ``SoftReasoner``."""

TO_TRANSFORMERS = (
    "attn_implementation", "device_map", "load_in_4bit", "load_in_8bit", "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_type", "bnb_4bit_use_double_quant",
)  # fmt: skip
"""What the harness's model hands on to ``from_pretrained``."""

NOT_READ = {
    "model": "the harness's arguments load the model (pretrained=, dtype=, revision=, peft=, ...)",
    "engine": "the model runs in transformers; of this group only engine.max_batch_tokens is read",
    "dataset": "the harness's task is the data set",
}
"""Groups of the configuration that are not read, and why."""

OWN_WORDS = ("rap", "verifier_only")
"""Methods that do not read a prompt that comes with a question."""

ACT_IN_HF = (
    "repetition_penalty", "no_repeat_ngram_size", "min_length", "min_new_tokens", "num_beams",
    "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "exponential_decay_length_penalty",
    "sequence_bias",
)  # fmt: skip
"""Settings of a model's generation config that change greedy decoding, unless they are None, 0 or 1."""

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
        harness, reasoner, overrides = sort_arguments(given)
        if reasoner.get("method") in OWN_WORDS:
            raise UserError(
                f"method={reasoner['method']}: expected a method that asks with the task's prompt, got one "
                "that asks in its own words; choose another"
            )
        if isinstance(harness.get("think_end_token"), int):
            raise UserError("think_end_token: expected the token's text, got its id; give the text")
        check_overrides(overrides)
        shown = Options(**{k: v for k, v in reasoner.items() if k not in ("prompt", "answer_type")})
        configured(shown, overrides)  # a typing error is told before the model is loaded
        name = resolve(str(pretrained))
        try:
            super().__init__(name, backend="causal", **{"device": str(device_of(None)), **harness})
        except Exception as error:  # any error of a foreign model is the reason to give
            raise UserError(why(name, error)) from error
        _warn_of_generation_config(self.model)
        self.question_field = question_field
        reasoner = {"answer_type": "number", **reasoner}
        self.reasoner = SoftReasoner(self.model, self.tokenizer, **reasoner, overrides=overrides)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the text of each request's solution; all of them share batches.

        Raises:
            UserError: For generation arguments that the method cannot follow, in one line.
        """
        eos = self.eot_token_id
        eos = None if eos is None else self.tokenizer.decode(eos, skip_special_tokens=False)
        arguments: list[tuple[str, dict[str, Any]]] = [one.arguments for one in requests]
        generations = [generation_of(given, eos, self.max_gen_toks) for _, given in arguments]
        asked = questions_of(requests, generations, self._encode_context, self.question_field)
        texts: dict[int, str] = {}
        for temperature in dict.fromkeys(one.temperature for one in generations):
            indices = [i for i, one in enumerate(generations) if one.temperature == temperature]
            changes = Options() if temperature is None else Options(temperature=temperature)
            solutions = self.reasoner.solve(
                [asked[i] for i in indices], progress=not disable_tqdm and self.rank == 0, **changes
            )
            for i, solution in zip(indices, solutions, strict=True):
                text = text_of(solution, self.reasoner.context.grader, self.reasoner.answer_type)
                texts[i] = postprocess_generated_text(text, None, self.think_end_token)
                self.cache_hook.add_partial("generate_until", requests[i].args, texts[i])
        return [texts[i] for i in range(len(requests))]

    def _encode_context(self, context: str, max_new_tokens: int) -> list[int]:
        """The token ids that ``hf`` gives ``context`` in a batch of its own, cut on the left alike."""
        room = self.max_length - max_new_tokens
        if room < 1:
            raise UserError(
                f"generation_kwargs: expected max_gen_toks below the model's context of {self.max_length} "
                f"tokens, got {max_new_tokens}"
            )
        ids, _ = self.tok_batch_encode([context], left_truncate_len=room, truncation=bool(self.truncation))
        return ids[0].tolist()


def sort_arguments(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return the arguments of the harness's ``hf``, those of ``SoftReasoner``, and the overrides.

    Raises:
        UserError: For an override that is not read.
    """
    harness: dict[str, Any] = {}
    reasoner: dict[str, Any] = {}
    overrides: list[str] = []
    for name, value in given.items():
        group = name.lstrip("+~").replace("/", ".").partition(".")[0]
        if name in REASONER:
            reasoner[name] = value
        elif name in OF_HARNESS or name in TO_TRANSFORMERS:
            harness[name] = value
        elif group in NOT_READ and name != "engine.max_batch_tokens":
            raise UserError(f"model_args: {name} is not read: {NOT_READ[group]}; leave it out")
        else:
            overrides.append(override(name, value))
    return harness, reasoner, overrides


def _warn_of_generation_config(model: Any) -> None:
    """Name what ``hf`` would apply to the logits and Soft Reasoning does not."""
    config = getattr(model, "generation_config", None)
    values = {key: getattr(config, key, None) for key in ACT_IN_HF}
    if changed := [f"{key}={value}" for key, value in values.items() if value not in (None, 0, 1)]:
        log.warning(
            "the model's generation config has %s, which --model hf applies and soft_reasoning does not",
            ", ".join(changed),
        )
