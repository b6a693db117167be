"""Stop strings: cut where the text says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.text import finish

TOKENIZER = FakeTokenizer()
TEXTS = st.text(alphabet="Qu es\n:é7", max_size=25)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


@given(TEXTS, st.lists(st.text(alphabet="Qu es\n:é7", min_size=1, max_size=4), min_size=1, max_size=3))
def test_equal_to_decoding_at_every_token(text, stop):
    ids = encode(text)
    count, cut, reason = finish(TOKENIZER, ids, stop=tuple(stop))
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
    count, text, reason = finish(Stripping(), ids, stop=(stop,))
    assert (count, reason) == (first, "stop") and text == " the Answer: 7"[1:].partition(stop)[0]


def test_a_special_token_can_be_a_stop_string():
    tokenizer = FakeTokenizer()
    ids = [*encode(" apples"), tokenizer.pad_token_id, *encode(" books")]
    assert finish(tokenizer, ids, stop=(tokenizer.all_special_tokens[2],)) == (2, " apples", "stop")
    assert finish(tokenizer, ids, stop=("Question:",)) == (3, " apples books", "length")
