"""The fitting of a judge that reads hidden states, once, on sampled solutions of a task's questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from soft_reasoning.checks import counts, real
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.scheduler import Run, run_steps
from soft_reasoning.schedule.solutions import read_candidate, sample_solutions
from soft_reasoning.task.learnt import labelled, origin
from soft_reasoning.task.objective import one_prompt
from soft_reasoning.task.probe import Probe, read_states, vote_shares
from soft_reasoning.types import MAX_NEW_TOKENS, Problem, Sampling, UserError

FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class ProbeFitting:
    """Fits a probe: samples solutions, labels them, and fits a logistic regression.

    It reads the hidden states at the end of a solution and their mean over it, each standardised and reduced
    to principal components, and the share of the question's other solutions with the same answer.

    Args:
        decoding: How solutions are sampled.
        samples: Solutions per question.
        max_new_tokens: Tokens per solution.
        components: Principal components of each state.
        strength: C of the regression, the inverse of its ridge.

    Raises:
        OptionError: For a value out of its range.
    """

    decoding: Sampling = Sampling(temperature=0.8, top_k=50)
    samples: int = 5
    max_new_tokens: int = MAX_NEW_TOKENS
    components: int = 32
    strength: float = 0.01

    def __post_init__(self) -> None:
        counts(self, "samples", "components", "max_new_tokens")
        fix = "several greedy solutions are equal"
        real("decoding.temperature", self.decoding.temperature, above=0.0, fix=fix)
        real("strength", self.strength, above=0.0)

    def fit(self, problems: Sequence[Problem], context: Context, *, run: Run | None = None) -> Probe:
        """Return the probe of ``problems``, with its cross-validated quality.

        A solution is correct if it has the reference answer. A question without one is left out, and one that
        is there several times counts once.

        Args:
            problems: The questions.
            context: The engine, prompts, grader and seed.
            run: As for :class:`~soft_reasoning.task.TaskObjective`.

        Raises:
            UserError: For questions of several answer types, for fewer than five questions with an answer
                and a solution, or where most of the correct or of the wrong solutions are of one question.
        """
        context = one_prompt(problems, context)
        asked = labelled(problems)
        rows, right, groups = list[np.ndarray](), list[bool](), list[int]()
        read = run_steps(self._read, asked, context, run=run)
        for number, (problem, solutions) in enumerate(zip(asked, read, strict=True)):
            for answer, features in solutions:
                rows.append(features)
                right.append(context.grader.equal(answer, problem.gold, problem.answer_type))
                groups.append(number)
        if (solved := len(set(groups))) < FOLDS:
            raise UserError(
                f"questions: expected {FOLDS} or more with an answer and a solution, got {solved}; give more"
            )
        X, y = np.stack(rows).astype(np.float64), np.array(right)
        folds = _folds(y, np.array(groups))
        width = X.shape[1] // 2
        components = min(self.components, len(X) // 2, *(len(seen) for seen, _ in folds))
        model = regression([width, width], components, self.strength)
        measured = _quality(model, X, y, folds)
        model.fit(X, y)
        bias = model.decision_function(np.zeros((1, X.shape[1])))[0]  # all its steps are linear
        *weights, vote_weight = (model.decision_function(np.eye(X.shape[1])) - bias).tolist()
        return Probe(
            weights=weights,
            vote_weight=vote_weight,
            bias=float(bias),
            measured=measured,
            **origin(context, asked),
        )

    def _read(self, problem: Problem, context: Context) -> Steps[list[tuple[str, np.ndarray]]]:
        """Sample solutions, and return the answer of each with its states and votes (2D + 1,)."""
        completions = yield from sample_solutions(
            problem, context, self.max_new_tokens, self.decoding, range(self.samples)
        )
        solutions = [read_candidate(completion, problem, context) for completion in completions]
        shares = vote_shares([s.answer for s in solutions], context.grader, problem.answer_type)
        rows = [(s.text, s.answer, votes) for s, votes in zip(solutions, shares, strict=True)]
        answered = [(text, answer, votes) for text, answer, votes in rows if answer is not None]
        if not answered:
            return []
        states = yield from read_states(problem, [text for text, _, _ in answered], context)
        pairs = zip(answered, states.numpy(), strict=True)
        return [(answer, np.append(state, votes)) for (_, answer, votes), state in pairs]


Folds: TypeAlias = Sequence[tuple[np.ndarray, np.ndarray]]
"""The rows that a probe is fitted on, and those that it is tested on."""


def _folds(y: np.ndarray, groups: np.ndarray) -> Folds:
    """Five parts by question; a probe is fitted on four of them."""
    from sklearn.model_selection import GroupKFold

    folds = list(GroupKFold(FOLDS).split(y, groups=groups))
    if any(len(np.unique(y[seen])) < 2 for seen, _ in folds):
        raise UserError(
            "questions: expected several with correct and several with wrong solutions, got "
            f"{int(y.sum())} correct of {len(y)} solutions; give more questions"
        )
    return folds


def _quality(model: Any, X: np.ndarray, y: np.ndarray, folds: Folds) -> dict[str, float]:
    """The AUC of probes that did not see the question, and that of the votes alone, the last column."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import cross_val_predict

    scores = cross_val_predict(model, X, y, cv=folds, method="decision_function")
    return {
        "texts": len(y),
        "right": float(y.mean()),
        "auc": float(roc_auc_score(y, scores)),
        "auc_votes": float(roc_auc_score(y, X[:, -1])),
    }


def regression(widths: Sequence[int], components: int, strength: float) -> Any:
    """Return scikit-learn's logistic regression, unfitted, on parts of the columns and on the rest of them.

    Args:
        widths: Columns of each part, one part after the other; a part is standardised and reduced.
        components: Principal components of a part.
        strength: As in :class:`ProbeFitting`.
    """
    from sklearn.compose import ColumnTransformer  # takes seconds, and options are checked before
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    parts: list[tuple[str, Any, slice]] = []
    for i, width in enumerate(widths):
        reduced = make_pipeline(StandardScaler(), PCA(min(components, width), random_state=0))
        parts.append((f"part {i}", reduced, slice(sum(widths[:i]), sum(widths[: i + 1]))))
    columns = ColumnTransformer(parts, remainder="passthrough")
    return make_pipeline(columns, StandardScaler(), LogisticRegression(C=strength, max_iter=1000))
