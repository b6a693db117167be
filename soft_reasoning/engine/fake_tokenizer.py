"""A tokenizer with a fixed vocabulary of words, for :mod:`soft_reasoning.engine.fake`."""

from __future__ import annotations

from collections.abc import Sequence

OPENERS = (" First", " Then", " We", " Let", " So", " Now", " Start", " Each")
NUMBERS = tuple(f" {n}" for n in range(21))
_WORDS = (
    "the of and to a in is has have had how many much more than each left total are was were it they he she "
    "all now then so per day days week Question Thought Answer Analysis step by think problem solution "
    "number True False Yes No Solve with for from at on not that this what apples books bought gave sold"
)


class FakeTokenizer:
    """Longest match over whole words (with or without a leading space), numbers and single bytes.

    Any text is encoded and decoded without loss; the longest match wins, so ids depend on the text alone.
    """

    bos_token_id = 0
    eos_token_id = 1
    pad_token_id = 2
    all_special_ids = [0, 1, 2]
    all_special_tokens = ["<s>", "</s>", "<pad>"]

    def __init__(self) -> None:
        words = dict.fromkeys(w for word in _WORDS.split() for w in (word, " " + word))
        words.update(dict.fromkeys([*OPENERS, *NUMBERS]))
        special = [token.encode() for token in self.all_special_tokens]
        self._pieces = special + [bytes([b]) for b in range(256)] + [w.encode() for w in words]
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i >= len(special)}
        self._longest = max(map(len, self._pieces))
        self.vocab_size: int = len(self._pieces)

    def token_ids(self, tokens: Sequence[str]) -> list[int]:
        """The ids of whole tokens."""
        return [self._pieces.index(token.encode()) for token in tokens]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        data, at = text.encode(), 0
        ids = [self.bos_token_id] if add_special_tokens else []
        while at < len(data):
            for size in range(min(self._longest, len(data) - at), 0, -1):
                token = self._ids.get(data[at : at + size])
                if token is not None and not (size > 1 and self._splits_word(data, at + size)):
                    ids.append(token)
                    at += size
                    break
        return ids

    def decode(
        self,
        ids: Sequence[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        skipped = self.all_special_ids if skip_special_tokens else ()
        return b"".join(self._pieces[i] for i in ids if i not in skipped).decode(errors="replace")

    @staticmethod
    def _splits_word(data: bytes, end: int) -> bool:
        """Whether a match ending at ``end`` would cut a word or a number in two."""
        return end < len(data) and chr(data[end - 1]).isalnum() and chr(data[end]).isalnum()
