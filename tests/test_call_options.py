"""Options of a reasoner and of its calls: none is lost when a call changes another one."""

import gc
import weakref
from dataclasses import dataclass, replace

import pytest

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine
from soft_reasoning.judge.model_verifier import ModelVerifier, NamedChoice
from soft_reasoning.method.soft_reasoning import SoftReasoning
from soft_reasoning.schedule.method import Generate
from soft_reasoning.types import Request, Result

QUESTION = "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"
METHODS = ("cot", "self_consistency", "verified_sampling", "best_of_n", "random_embedding")


@pytest.fixture(scope="module")
def plain():
    with SoftReasoner.from_pretrained("demo", **FAKE) as reasoner:
        yield reasoner


FAKE = {"k": 2, "rounds": 0, "engine": "fake"}


def first(solution):
    return [(c.text, c.generated_tokens, c.finish_reason) for c in solution.candidates]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "option", [{"stop": [" "]}, {"max_new_tokens": 7}, {"max_tokens": 9}, {"seed": 3}, {"max_seconds": 1e-9}]
)
def test_another_method_keeps_what_every_method_has(plain, method, option):
    with SoftReasoner.from_pretrained("demo", **FAKE, **option) as reasoner:
        kept = reasoner.solve(QUESTION, method=method)
        again = reasoner.solve(QUESTION, method=method, **{name: None for name in option})
    expected = plain.solve(QUESTION, method=method, **option)
    assert first(kept) == first(again) == first(expected)
    if "seed" not in option or method != "cot":
        assert first(kept) != first(plain.solve(QUESTION, method=method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", [{"max_tokens": 1}, {"max_tokens": 3}, {"max_seconds": 1e-9}], ids=str)
def test_a_budget_that_cuts_all_candidates_is_named(plain, caplog, method, limit):
    solution, [name] = plain.solve(QUESTION, method=method, **limit), limit
    assert solution.ended == name and f"\n{name}: none of " in solution.explain()
    assert caplog.text.rstrip().endswith(f"raise max_new_tokens or {name}") == bool(solution.candidates)


def test_an_option_of_the_call_has_priority():
    with SoftReasoner.from_pretrained("demo", stop=["="], max_new_tokens=30) as reasoner:
        [candidate] = reasoner.solve(QUESTION, method="cot", stop=["Then"], max_new_tokens=50).candidates
        [short] = reasoner.solve(QUESTION, method="cot", max_new_tokens=2).candidates
    assert "=" in candidate.text and "Then" not in candidate.text
    assert short.generated_tokens == 2


@dataclass(frozen=True)
class Own:
    """A method of the user's."""

    tokens: int = 5
    name: str = "own"

    def solve(self, problem, context):
        [completion] = yield Generate(
            [Request(context.prompts.solve(problem).ids, max_new_tokens=self.tokens, role="candidate")]
        )
        return Result(completion.text, ())


def test_an_object_has_its_own_bound():
    with SoftReasoner.from_pretrained("demo", max_new_tokens=50, engine="fake") as reasoner:
        assert reasoner.solve(QUESTION, method=Own()).total.generated_tokens == 5
        with pytest.raises(UserError, match="k: expected a method that reads it, got method=own"):
            reasoner.solve(QUESTION, method=Own(), k=3)
    with pytest.raises(UserError, match="k: expected a method that reads it, got method=own"):
        SoftReasoner.from_pretrained("demo", method=Own(), k=3, engine="fake")


def test_options_replace_the_fields_of_a_method_object():
    method = SoftReasoning(k=4, verifier=ModelVerifier(samples=1))
    own = {"method": method, "max_new_tokens": 9, "engine": "fake"}
    with SoftReasoner.from_pretrained("demo", **own) as reasoner:
        changed, _ = reasoner.setup.solving(
            {"k": 2, "rounds": 1, "temperature": 0.3, "final": "vote"}, reasoner._base, reasoner._models
        )
        assert (changed.k, changed.stopping.rounds, changed.decoding.temperature) == (2, 1, 0.3)
        assert (changed.max_new_tokens, changed.verifier.max_new_tokens) == (9, 9)
        assert reasoner.method.k == 4 and reasoner.method.verifier.samples == 1
        solution = reasoner.solve(QUESTION, k=2, rounds=0)
    assert len(solution.candidates) == 2 and solution.method == "soft_reasoning"


BY_DEMO = ModelVerifier(name="single_judge", presentation="one_by_one", judgement=NamedChoice(), model="demo")


def judged(**options):
    own = {"k": 2, "rounds": 0, "max_new_tokens": 20, "engine": "fake", "verifier": BY_DEMO}
    reasoner = SoftReasoner.from_pretrained("demo", **{**own, **options})
    weight = weakref.ref(reasoner.context.judges["demo"].engine.model.get_input_embeddings().weight)
    return reasoner, weight


@pytest.mark.slow
def test_a_judge_is_loaded_once_with_the_settings_of_loading_and_freed_with_its_reasoner():
    """The device is among them: a judge is not loaded a second time on another one."""
    (one, weight), (other, kept) = judged(device="cpu", dtype="float32", engine="hf"), judged()
    judge = weakref.ref(one.context.judges["demo"].engine)
    for change in ({}, {"k": 3}, {"seed": 4}, {"verifier": "multi_judge"}, {"preset": "paper"}):
        _, context = one.setup.solving(change, one._base, one._models)
        assert context.engine.settings["device"] == "cpu" and context.engine.settings["dtype"] == "float32"
        chosen = {"verifier", "preset"} & change.keys()  # these bring verifiers of their own
        assert chosen or context.judges["demo"].engine is judge()
        one.solve(QUESTION, **change)
    del context
    one.close()
    gc.collect()
    assert weight() is None
    assert other.solve(QUESTION).trace[0]["verifier"]["texts"]  # the other's judge goes on
    other.close()
    gc.collect()
    assert kept() is None


@pytest.mark.slow
def test_a_judge_is_freed_without_close_and_where_opening_fails():
    reasoner, weight = judged()
    thread = reasoner._thread._thread
    del reasoner
    gc.collect()
    thread.join()  # it frees the model after the reasoner has gone
    gc.collect()
    assert weight() is None
    with pytest.raises(UserError, match="nowhere"):
        judged(verifier=replace(BY_DEMO, model="./nowhere"))
    config = compose_config(["verifier.model=demo", "engine=fake"])
    context = build_context(config, build_engine(config))
    weight = weakref.ref(context.judges["demo"].engine.model.get_input_embeddings().weight)
    del context
    gc.collect()
    assert weight() is None


def test_every_short_option_is_a_keyword():
    options = {"d": 7, "delta": 0.2, "lambda_": 0.4, "placement": "first", "stopping": "difference"}
    with SoftReasoner.from_pretrained("demo", engine="fake", epsilon=0.3, **options) as reasoner:
        method = reasoner.method
        assert (method.embedding.dim, method.placement, method.stopping.threshold) == (7, "first", 0.3)
        assert method.optimiser.acquisition.keywords == {"delta": 0.2}
        assert method.optimiser.surrogate.noise == 0.4
        with pytest.raises(UserError, match="^delta: expected .*leave delta out"):
            reasoner.solve(QUESTION, acquisition="ei", delta=0.1)


def test_the_public_code_s_preset_reads_answers_as_it_does():
    with SoftReasoner.from_pretrained("demo", engine="fake") as reasoner:
        names = {}
        for preset in ("released", "paper"):
            _, context = reasoner.setup.solving({"preset": preset}, reasoner._base, reasoner._models)
            names[preset] = context.grader.name
    assert names["released"] == "released" != names["paper"]
