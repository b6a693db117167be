"""Where completions end: stop strings are cut where the text says, and why they end is a text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.text import StopChecker
from soft_reasoning.types import FinishReason

TOKENIZER = FakeTokenizer()
TEXTS = st.text(alphabet="Qu es\n:é7", max_size=25)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


@given(TEXTS, st.lists(st.text(alphabet="Qu es\n:é7", min_size=1, max_size=4), min_size=1, max_size=3))
def test_equal_to_decoding_at_every_token(text, stop):
    ids = encode(text)
    count, cut, reason = StopChecker(TOKENIZER).finish(ids, tuple(stop))
    prefixes = [TOKENIZER.decode(ids[:n]) for n in range(1, len(ids) + 1)]
    first = next((n for n, p in enumerate(prefixes, 1) if any(s in p for s in stop)), None)
    if first is None:
        assert (count, cut, reason) == (len(ids), text, "length")
    else:
        whole = prefixes[first - 1]
        assert (count, reason) == (first, "stop")
        assert cut == whole[: min(whole.find(s) for s in stop if s in whole)]


class Stripping(FakeTokenizer):
    """As sentencepiece's: a text loses the space in front of its first word."""

    def decode(self, ids, **options):
        return super().decode(ids, **options).removeprefix(" ")


@pytest.mark.parametrize("stop", ["Answer: ", ": ", "Answer:", "er: 7"])
def test_a_token_that_loses_its_space_alone_may_complete_a_stop(stop):
    ids = encode(" the Answer: 7 apples")
    first = next(n for n in range(1, len(ids)) if stop in Stripping().decode(ids[:n]))
    count, text, reason = StopChecker(Stripping()).finish(ids, (stop,))
    assert (count, reason) == (first, "stop") and text == " the Answer: 7"[1:].partition(stop)[0]


def test_a_special_token_can_be_a_stop_string():
    tokenizer = FakeTokenizer()
    ids = [*encode(" apples"), tokenizer.pad_token_id, *encode(" books")]
    stops = StopChecker(tokenizer)
    assert stops.finish(ids, (tokenizer.all_special_tokens[2],)) == (2, " apples", "stop")
    assert stops.finish(ids, ("Question:",)) == (3, " apples books", "length")


@pytest.mark.parametrize("least, reason", [(0, "eos"), (2, "eos"), (3, "length")])
def test_an_end_token_after_the_least_number_of_tokens_ends_it(least, reason):
    ids = encode(" apples books") + [TOKENIZER.eos_token_id]
    count, text, why = StopChecker(TOKENIZER).finish(ids, eos={TOKENIZER.eos_token_id}, min_new_tokens=least)
    assert (count, text, why) == (3, " apples books", reason)


def test_a_reason_is_stored_as_its_text():
    assert json.dumps([*FinishReason]) == '["stop", "eos", "length", "budget"]'
    assert [FinishReason(text) for text in json.loads(json.dumps([*FinishReason]))] == [*FinishReason]
