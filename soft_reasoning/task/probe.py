"""A probe of hidden states, fitted once on sampled texts of a task's questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from soft_reasoning.checks import check_sampling, counts, real
from soft_reasoning.judge.probe import Probe, read_states
from soft_reasoning.schedule.learnt import made_for, question_marks
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.schedule.solutions import read_candidate, solution_request
from soft_reasoning.task.learning import rewarded
from soft_reasoning.task.objective import Run
from soft_reasoning.types import MAX_NEW_TOKENS, Generate, Problem, Result, Sampling, UserError

FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class ProbeFitting:
    """Fits a probe: samples solutions, labels them, and fits a logistic regression on their hidden states.

    The states are standardised and reduced to principal components first.

    Args:
        decoding: How solutions are sampled.
        samples: Solutions per question.
        max_new_tokens: Tokens per solution.
        components: Principal components of the states.
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
        check_sampling(self.decoding, "decoding.", fix="several greedy solutions are equal")
        real("strength", self.strength, above=0.0)

    def fit(self, problems: Sequence[Problem], context: Context, *, run: Run | None = None) -> Probe:
        """Return the probe of ``problems``, with its cross-validated quality.

        A text is right if it has the reference answer; where there is none, if more than half of the
        question's programs have its answer.

        Args:
            problems: The questions.
            context: The engine, prompts, grader and seed.
            run: As for :class:`~soft_reasoning.task.TaskObjective`.

        Raises:
            UserError: For fewer than five questions with an answer, or texts that are all right or all wrong.
        """
        labelled = rewarded(problems, context, run)
        asked = [problem for problem, _ in labelled]
        if len(asked) < FOLDS:
            raise UserError(f"questions: expected {FOLDS} or more with an answer, got {len(asked)}")
        texts = _Texts(self)
        if run is None:
            for _ in drive(asked, texts, context):
                pass
        else:
            run(asked, texts)
        equal = context.grader.equal
        rows, right, groups = list[np.ndarray](), list[bool](), list[int]()
        for number, (problem, answers) in enumerate(labelled):
            for answer, state in texts.read[problem.id]:
                agreed = [equal(answer, accepted, problem.answer_type) for accepted in answers]
                rows.append(state)
                right.append(2 * sum(agreed) > len(agreed))
                groups.append(number)
        X, y = np.stack(rows).astype(np.float64) if rows else np.zeros((0, 1)), np.array(right)
        if len(np.unique(y)) < 2:
            raise UserError(
                f"questions: expected right and wrong texts, got {int(y.sum())} right of {len(y)}; give more"
            )
        measured = self._quality(X, y, np.array(groups))
        model = self._model(X).fit(X, y)
        bias = model.decision_function(np.zeros((1, X.shape[1])))[0]  # all its steps are linear
        weights = model.decision_function(np.eye(X.shape[1])) - bias
        return Probe(
            weights=tuple(weights.tolist()),
            bias=float(bias),
            measured=measured,
            made_for=made_for(context),
            questions=question_marks(asked),
        )

    def _model(self, X: np.ndarray) -> Any:
        from sklearn.decomposition import PCA  # scikit-learn takes seconds, and options are checked before
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        components = PCA(min(self.components, len(X) // 2, X.shape[1]), random_state=0)
        regression = LogisticRegression(C=self.strength, max_iter=1000)
        return make_pipeline(StandardScaler(), components, StandardScaler(), regression)

    def _quality(self, X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> dict[str, float]:
        """AUC over all texts and the mean within a question, by probes that did not see the question."""
        from sklearn.metrics import roc_auc_score
        from sklearn.model_selection import GroupKFold, cross_val_predict

        model = self._model(X)
        scores = cross_val_predict(
            model, X, y, groups=groups, cv=GroupKFold(FOLDS), method="decision_function"
        )
        within = [
            roc_auc_score(y[rows], scores[rows])
            for rows in (groups == number for number in np.unique(groups))
            if 0 < y[rows].sum() < rows.sum()
        ]
        return {
            "texts": len(y),
            "right": float(y.mean()),
            "auc": float(roc_auc_score(y, scores)),
            "auc_within": float(np.mean(within)) if within else float("nan"),
            "mixed_questions": len(within),
        }


@dataclass(frozen=True)
class _Texts:
    """Samples solutions and reads the state at the end of each."""

    fitting: ProbeFitting
    read: dict[str, list[tuple[str, np.ndarray]]] = field(
        default_factory=dict[str, list[tuple[str, np.ndarray]]]
    )
    name: str = "texts"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        limit, sampling = self.fitting.max_new_tokens, self.fitting.decoding
        requests = [
            solution_request(problem, context, limit, index=i, sampling=sampling)
            for i in range(self.fitting.samples)
        ]
        completions = yield Generate(requests)
        candidates = [read_candidate(completion, problem, context) for completion in completions]
        answered = [c for c in candidates if c.answer is not None]
        self.read[problem.id] = []
        if answered:
            states = yield from read_states(problem, [c.text for c in answered], context)
            self.read[problem.id] = [
                (c.answer or "", state) for c, state in zip(answered, states.numpy(), strict=True)
            ]
        return Result(None, tuple(candidates))
