"""An engine with a store of completions: the contract, what is replayed, and what is not stored."""

from contextlib import contextmanager
from dataclasses import replace
from time import monotonic

import pytest
import torch

from soft_reasoning.engine.completions import StoreFile, replaying
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request, Sampling
from tests.contracts.engine import EngineContract

ENGINES = {"fake": FakeEngine, "huggingface": lambda: HuggingFaceEngine("demo")}
TEXTS = ("Sam has 8 cards. 1) Sam gets 10.", "How many more books?", "Solutions:\nHow many?\n")


@pytest.fixture(scope="module", params=sorted(ENGINES))
def bare(request):
    return ENGINES[request.param]()


@pytest.fixture(scope="module")
def prompts(bare):
    return [tuple(bare.tokenizer.encode(text)) for text in TEXTS]


@pytest.fixture
def place(tmp_path):
    return StoreFile.of(str(tmp_path), 1.0)


@pytest.fixture
def engine(bare, place):
    with replaying(place, [bare]):
        yield bare


@contextmanager
def idle(engine):
    """Fails where the engine gets work."""

    def refused(rows):
        assert not rows

    engine.begin = refused
    try:
        yield
    finally:
        del engine.begin


class TestContract(EngineContract):
    """Every test of the contract holds with a store that is empty, and with one that it has filled."""

    @pytest.fixture(scope="class")
    def engine(self, bare, tmp_path_factory):
        with replaying(StoreFile.of(str(tmp_path_factory.mktemp("store")), 1.0), [bare]):
            yield bare

    def test_a_step_is_about_a_token_and_requests_join_between_steps(self, engine, prompts):
        """Of a long request and one that comes later, both stored, each is complete at the next step."""
        asked = [Request(prompts[0], max_new_tokens=40, min_new_tokens=40), Request(prompts[1])]
        expected = engine.generate(asked)
        for request, completion in zip(asked, expected, strict=True):
            [ticket] = engine.add([request])
            [(done, outcome)] = engine.step([ticket])
            assert done == ticket and self.same(outcome, completion)


def kinds(engine, prompts) -> list[Request]:
    """Requests for text and for every reading."""
    soft = engine.embed(prompts[0][:2]) * 1.1
    drawn = {"sampling": Sampling(1.1, top_k=30), "max_new_tokens": 8}
    states = {"hidden_state": 1.0 if "hidden_states" in engine.offers else None}
    return [
        *(Request(prompt, seed=seed, **drawn) for seed, prompt in enumerate(prompts)),
        Request(prompts[0], soft=soft, position=1, max_new_tokens=6, top_logprobs=3, next_logits=True),
        Request(prompts[1], max_new_tokens=0, next_logits=(7, 3), **states),
        Request(prompts[1], max_new_tokens=0, next_logits=(), top_logprobs=2),
    ]


def test_what_was_completed_once_is_replayed_bit_by_bit_without_work(bare, prompts, place):
    with replaying(place, [bare]):
        first = bare.generate(kinds(bare, prompts))
    with replaying(place, [bare]), idle(bare):
        again = bare.generate(kinds(bare, prompts))
    assert not any(completion.replayed for completion in first) and all(c.replayed for c in again)
    assert again == first
    for a, b in zip(again, first, strict=True):
        assert a.top_logprobs == b.top_logprobs
        for name in ("next_logits", "hidden_state"):
            x, y = getattr(a, name), getattr(b, name)
            assert (x is None) == (y is None)
            assert x is None or (x.dtype == y.dtype and torch.equal(x, y) and not x.is_inference())
    assert not any(completion.replayed for completion in bare.generate(kinds(bare, prompts)))


def test_the_stored_come_at_the_next_step_and_the_others_as_without_them(engine, prompts):
    known = Request(prompts[0], max_new_tokens=4)
    new = [Request(prompt, max_new_tokens=3, seed=5, sampling=Sampling(0.9)) for prompt in prompts]
    stored = engine.generate([known])
    tickets = engine.add([new[0], known, *new[1:], known])
    engine.cancel(tickets[-1:])
    assert [*engine.queued] == [tickets[0], *tickets[2:-1]]
    assert engine.step() == [(tickets[1], stored[0])]
    outcomes = dict[int, object]()
    while engine.queued:
        outcomes |= dict(engine.step())
    assert outcomes.keys() == {tickets[0], *tickets[2:-1]}
    assert [outcomes[ticket] for ticket in (tickets[0], *tickets[2:-1])] == engine.generate(new)


def test_every_step_is_stored_before_its_outcomes_are_returned(engine, prompts, place):
    """Also of requests that were cancelled or failed meanwhile, whose tickets are forgotten."""
    short, long = Request(prompts[0], max_new_tokens=1), Request(prompts[1], max_new_tokens=30)
    tickets = engine.add([short, long, replace(long, seed=1)])
    [(ticket, completion)] = engine.step()
    engine.cancel(tickets[1:])
    assert ticket == tickets[0] and engine.replay._keys == {}
    other = FakeEngine() if isinstance(engine, FakeEngine) else HuggingFaceEngine("demo")
    with replaying(place, [other]), idle(other):
        assert other.generate([short]) == [completion]


def test_what_a_deadline_cut_is_not_stored_and_what_is_stored_meets_any_deadline(engine, prompts):
    request = Request(prompts[0], max_new_tokens=20)
    late = replace(request, deadline=monotonic())
    [cut] = engine.generate([late])
    [whole] = engine.generate([request])
    assert cut.generated_tokens == 1 < whole.generated_tokens and not whole.replayed
    assert engine.generate([late]) == [whole]


def test_a_store_belongs_to_the_weights(place, prompts):
    """Another model, the same with one weight changed, and the model as it was."""
    engine = HuggingFaceEngine("demo")
    ask = [Request((1, 2, 3), max_new_tokens=2)]
    weight = next(iter(engine.model.parameters())).data
    seen = []
    for value in (float(weight[-1, -1]), 0.5, float(weight[-1, -1])):
        weight[-1, -1] = value
        with replaying(place, [engine]):
            seen.append(engine.generate(ask)[0].replayed)
    assert seen == [False, False, True]
