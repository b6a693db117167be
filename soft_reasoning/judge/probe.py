"""A judge that reads the model's hidden state at the end of a candidate; it writes nothing.

It is a logistic regression, fitted once on labelled texts of a task by
:class:`soft_reasoning.task.ProbeFitting`. LiLaVe (Piotrowski et al., arXiv 2504.16760) does the same with
boosted trees. Reading takes one forward pass over a candidate's tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar

import torch
from torch import Tensor

from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.schedule.learnt import Learnt
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.types import Candidate, Generate, Problem, Request

DEPTH = 2 / 3
"""Share of the layers below the state that is read."""


@dataclass(frozen=True, kw_only=True)
class Probe(Learnt):
    """A logistic regression on a hidden state h: sigmoid(weights . h + bias) is the score of a text.

    Attributes:
        weights: (D,).
        bias: The log-odds at h = 0.
        measured: Its cross-validated quality when it was fitted.
    """

    weights: tuple[float, ...]
    bias: float
    measured: Mapping[str, float] = field(default_factory=dict[str, float])
    option: ClassVar[str] = "probe"
    command: ClassVar[str] = "soft-reasoning tune tune=probe"

    @classmethod
    def read(cls, content: dict[str, Any]) -> dict[str, Any]:
        weights, bias = tuple(map(float, content["weights"])), float(content["bias"])
        return {**content, "weights": weights, "bias": bias}

    def judge(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context
    ) -> Steps[list[float]]:
        """Return the score of each candidate; one without an answer is not read and scores 0.

        Raises:
            UserError: If the probe was made for another model or prompt.
        """
        self.check_fits(context)
        shown = [candidate.text for candidate in candidates if candidate.answer is not None]
        read = iter(self.scores((yield from read_states(problem, shown, context))) if shown else ())
        return [0.0 if candidate.answer is None else next(read) for candidate in candidates]

    def scores(self, states: Tensor) -> list[float]:
        """Return the scores (n,) of ``states`` (n, D)."""
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return torch.sigmoid(states.double() @ weights + self.bias).tolist()


def read_states(problem: Problem, texts: Sequence[str], context: Context) -> Steps[Tensor]:
    """Return the hidden states (n, D) at the end of ``texts``, which follow the problem's prompt."""
    ids = context.prompts.solve(problem).ids
    requests = [
        Request(
            (*ids, *context.engine.tokenizer.encode(text, add_special_tokens=False)),
            max_new_tokens=0,
            hidden_state=DEPTH,
            role="verifier",
        )
        for text in texts
    ]
    looks = yield Generate(requests)
    return torch.stack([look.hidden_state for look in looks])


@dataclass(frozen=True, kw_only=True)
class ProbeVerifier:
    """Scores a candidate by a probe of its hidden state.

    Args:
        probe: The probe, or a file of it that ``soft-reasoning tune tune=probe`` wrote. One of another model
            or prompt is refused.

    Raises:
        OptionError: For a file without a probe.
    """

    probe: Probe | str | PathLike[str]
    name: str = "probe"
    short: ClassVar[Mapping[str, str]] = {"probe": "probe"}

    def __post_init__(self) -> None:
        if not isinstance(self.probe, Probe):
            object.__setattr__(self, "probe", Probe.load(self.probe))

    @property
    def learnt(self) -> Probe:
        """The probe."""
        assert isinstance(self.probe, Probe)
        return self.probe

    def verify(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Steps[Verdict]:
        return Verdict(tuple((yield from self.learnt.judge(problem, candidates, context))))
