"""``model_args`` of the harness, sorted by who reads them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from soft_reasoning.configuration.compose import override
from soft_reasoning.configuration.folder import known_keys
from soft_reasoning.configuration.options import Options
from soft_reasoning.types import UserError

REASONER = ("prompt", "answer_type", *Options.__annotations__)
"""Keyword arguments of ``SoftReasoner``."""

TO_TRANSFORMERS = (
    "attn_implementation", "device_map", "load_in_4bit", "load_in_8bit", "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_type", "bnb_4bit_use_double_quant",
)  # fmt: skip
"""What the harness's model hands on to ``from_pretrained``."""

OTHERS = {
    "model": "the harness's arguments load the model (pretrained=, dtype=, revision=, peft=, ...)",
    "engine": "the model runs in transformers; of this group only engine.max_batch_tokens is read",
    "dataset": "the harness's task is the data set",
}
"""Groups of the configuration that are not read, and why."""


@dataclass
class Arguments:
    """``model_args`` by reader.

    Attributes:
        harness: Keyword arguments of the harness's model ``hf``.
        reasoner: Keyword arguments of ``SoftReasoner``.
        overrides: Overrides of the configuration, such as ``search.rounds=2``.
    """

    harness: dict[str, Any] = field(default_factory=dict)
    reasoner: dict[str, Any] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)


def sort_arguments(given: Mapping[str, Any], of_harness: Collection[str]) -> Arguments:
    """Return ``given`` by reader.

    Args:
        given: The arguments, values as the harness parsed them.
        of_harness: Names of the arguments of the harness's model ``hf``.

    Raises:
        UserError: For a name that nobody reads.
    """
    found, keys = Arguments(), known_keys()
    for name, value in given.items():
        group = name.lstrip("+~").replace("/", ".").partition(".")[0]
        if name in REASONER:
            found.reasoner[name] = value
        elif name in of_harness or name in TO_TRANSFORMERS:
            found.harness[name] = value
        elif group in OTHERS and name != "engine.max_batch_tokens":
            raise UserError(f"model_args: {name} is not read: {OTHERS[group]}; leave it out")
        elif group in keys:
            found.overrides.append(override(name, value))
        else:
            known = [*of_harness, *REASONER, *keys]
            near = difflib.get_close_matches(group, known, n=1)
            fix = f"did you mean {near[0]}?" if near else "leave it out"
            raise UserError(
                "model_args: expected an argument of the harness's model hf (pretrained, dtype, ...), one of "
                f"{', '.join(REASONER)}, or an override such as search.rounds=2, got {name}; {fix}"
            )
    return found
