"""Methods on the fake engine: what every result holds, and what the search does with its rounds."""

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Problem, UserError

PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?", str(2 * i + 3)) for i in range(6)]


@pytest.fixture(scope="module")
def engine():
    return build_engine(compose_config(["engine=fake"]))


def solve(engine, *overrides, seed=0):
    config = compose_config([f"seed={seed}", "max_new_tokens=30", *overrides])
    method, context = build_method(config), build_context(config, engine)
    return {p.id: r for p, r in drive(PROBLEMS, method, context)}


def test_rounds_and_candidates_are_as_configured(engine):
    results = solve(engine, "k=3", "rounds=2", "stopping=none")
    for result in results.values():
        assert [c.round for c in result.candidates] == [0] * 3 + [1] * 3 + [2] * 3
        assert [t["round"] for t in result.trace] == [0, 1, 2]
        assert result.trace[-1]["ended"] == "rounds" and "ended" not in result.trace[0]
        assert result.trace[0]["proposal"] is None and len(result.trace[1]["proposal"]["mean"]) == 3


def test_the_control_shares_the_first_round_and_nothing_more(engine):
    rule = "stopping=none"
    ours, control = solve(engine, rule), solve(engine, rule, "method=random_embedding")
    for name in ours:
        candidates, controls = ours[name].candidates, control[name].candidates
        assert [c.u for c in candidates[:5]] == [c.u for c in controls[:5]]
        assert not {c.u for c in candidates[5:]} & {c.u for c in controls[5:]}


@pytest.mark.parametrize(
    ("overrides", "asked"),
    [
        ([], False),
        (["final=vote", "final.verifier_weight=0", "stopping=unanimous"], False),
        (["final=vote"], True),
        (["stopping=agreement"], True),
        (["reward.verifier_weight=0.5"], True),
    ],
)
def test_the_verifier_is_asked_only_where_something_reads_its_verdict(engine, overrides, asked):
    results = solve(engine, "preset=paper", "reward.verifier_weight=0", *overrides)
    for result in results.values():
        assert ("verifier" in result.usage) == asked
        if not asked:
            assert all(c.verified is None and c.reward == c.coherence for c in result.candidates)


@pytest.mark.parametrize("method", [["method=soft_reasoning", "rounds=0"], ["method=best_of_n"]])
def test_candidates_keep_their_score_from_before_confidence(engine, method):
    weighed = (f"verifier.confidence={name}" for name in ("none", "sequence_prob"))
    plain, sure = (solve(engine, *method, "verifier=single_judge", override) for override in weighed)
    for name, result in sure.items():
        kept = [c.agreement for c in result.candidates]
        assert kept == [c.verified for c in plain[name].candidates]
    assert any(c.agreement > c.verified for r in sure.values() for c in r.candidates)


@pytest.mark.parametrize("embedding", ["gaussian", "token_simplex"])
@pytest.mark.parametrize("scope", [1, 2])
def test_the_trace_names_tokens(engine, embedding, scope):
    rounds = ["rounds=1", "stopping=none"]
    result = solve(engine, f"embedding={embedding}", "d=4", f"method.scope={scope}", *rounds)["p0"]
    for entry in result.trace:
        assert len(entry["tokens"]) == 5
        for token in (token for candidate in entry["tokens"] for token in candidate):
            assert len(token["nearest"]) == 3 and isinstance(token["nearest"][0][0], str)
            assert ("weights" in token) == embedding.startswith("token_")
        assert {len(candidate) for candidate in entry["tokens"]} == {scope}


def test_a_budget_of_tokens_counts_what_the_verifier_writes(engine):
    for most in (7, 60, 150):
        for result in solve(engine, "stopping=none", f"max_tokens={most}").values():
            written = {role: usage.generated_tokens for role, usage in result.usage.items()}
            assert sum(written.values()) <= most and result.trace[-1]["ended"] == "max_tokens"
            assert most < 150 or written["verifier"] > 0


@pytest.mark.parametrize("scope", [1, 2])
def test_a_budget_spent_before_the_search_ends_the_problem_and_not_the_run(engine, scope):
    for result in solve(engine, f"method.scope={scope}", "max_tokens=1", "d=4").values():
        assert (result.answer, result.spent) == (None, "max_tokens")


@pytest.mark.parametrize(
    ("method", "bad"),
    [
        ("soft_reasoning", "k=1"),
        ("soft_reasoning", "method.scope=1.5"),
        ("soft_reasoning", "reward.verifier_weight=abc"),
        ("best_of_n", "decoding.top_p=2"),
        ("fire", "method.first_top_k=-4"),
        ("prefix_scorer", "method.block_tokens=0"),
    ],
)
def test_bad_values_are_refused_when_built(method, bad):
    with pytest.raises(UserError) as refused:
        build_method(compose_config([f"method={method}", bad]))
    error = refused.value
    assert bad.split("=")[0] in str(error) and "expected" in str(error) and "\n" not in str(error)


def test_parts_that_cannot_work_are_refused():
    with pytest.raises(UserError, match="method.decoding: expected an object with temperature, got 'hot'"):
        build_method(compose_config(["method=soft_reasoning", "method.decoding=hot"]))
    for part in ("stopping", "reward", "final", "embedding", "optimiser", "decoding"):
        with pytest.raises(UserError, match=f"method.{part}: expected an object with [a-z_]+, got None"):
            build_method(compose_config(["method=soft_reasoning", f"method.{part}=null"]))
    with pytest.raises(UserError, match="use decoding=sampled with a temperature above 0"):
        build_method(compose_config(["method=verified_sampling", "decoding=greedy"]))
