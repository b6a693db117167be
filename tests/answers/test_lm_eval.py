"""lm-evaluation-harness' GSM8K filters and metric, by what the harness itself gives for these texts."""

import pytest

from soft_reasoning.answers import LmEvalGrader
from soft_reasoning.types import Problem, UserError

STRICT, FLEXIBLE = LmEvalGrader("strict-match"), LmEvalGrader("flexible-extract")


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("She makes 9 * 2 = $18.\n#### 18", "18", "18"),
        ("#### 18. Then #### 19.", "18.", "19."),
        ("####18", None, "18"),
        ("#### -1,234.50 or 7", "-1,234.50", "7"),
        ("The answer is $1,234.", None, "$1,234."),
        ("Answer: −5", None, "5"),
        ("Answer: eighteen", None, None),
        ("", None, None),
    ],
)
def test_filters(text, strict, flexible):
    assert STRICT.extract(text, "number") == strict
    assert FLEXIBLE.extract(text, "number") == flexible


@pytest.mark.parametrize(
    ("answer", "gold", "same"),
    [
        ("18.", "18", True),
        ("$1,234.", "1234", True),
        ("18.0", "18", False),
        ("18.00", "so #### 18.00", True),
        (None, "18", False),
    ],
)
def test_exact_match(answer, gold, same):
    assert FLEXIBLE.correct(answer, Problem("p", "?", gold)) is same


def test_votes_are_by_exact_match():
    assert FLEXIBLE.vote(["7", "18.", None, "$18"], "number") == "18."


def test_other_answers_are_refused():
    with pytest.raises(
        UserError, match="grader=lm_eval_strict: expected answers of type number, got boolean"
    ):
        STRICT.extract("yes", "boolean")
    with pytest.raises(UserError, match="expected one of strict-match, flexible-extract"):
        LmEvalGrader("strict")


def test_beside_the_harness_itself():
    """Where lm-evaluation-harness is installed."""
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
    from itertools import product

    from lm_eval.api.metrics import exact_match_hf_evaluate
    from lm_eval.filters.extraction import RegexFilter

    pieces = ["#### ", "18", "$", "-", ",", ".", " ", "4,567.5", "x", "\n"]
    texts = ["".join(parts) for n in range(5) for parts in product(pieces, repeat=n)]
    rules = {
        STRICT: {"regex_pattern": "#### (\\-?[0-9\\.\\,]+)"},
        FLEXIBLE: {"regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1},
    }
    for grader, rule in rules.items():
        theirs = [match for [match] in RegexFilter(**rule).apply([[t] for t in texts], [{}] * len(texts))]
        assert [grader.extract(text, "number") or "[invalid]" for text in texts] == theirs
    for match in set(theirs):
        score = exact_match_hf_evaluate(
            [match], ["#### 18"], regexes_to_ignore=[",", "\\$", "(?s).*#### ", "\\.$"], ignore_case=True
        )
        assert FLEXIBLE.correct(match, Problem("p", "?", "#### 18")) == bool(score["exact_match"])
