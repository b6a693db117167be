"""Reading answers in words: the first sentence of a statement without emphasis, quotes and full stop."""

from __future__ import annotations

import re

from soft_reasoning.answers.reader import Found, first_line
from soft_reasoning.answers.refusal import REFUSAL
from soft_reasoning.answers.rewriting import Rewriter

_END = re.compile(  # after "Vitamin C. It is", not in "St. Louis" or "J. K. Rowling"
    r"\.(?=[\"'”*]*(?:\s+(?:The|This|That|It|He|She|They|We|In|So|Because)\b|\s*$))"
    r"|(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Mt|Lt))(?<!\b(?:Mrs|Gen|Col|Sgt|Rev|Gov|Sen))(?<!\b(?:Prof|Capt))"
    r"\.(?=[\"'”*]*\s+[A-Z])"
)
_SIGNS = re.compile(r"((?<!\w)-(?=\.?\d)|(?<=\d)\.(?=\d)|(?<=[^\W\d_])[+#]+(?!\w))|[^\w\s]")
_PLAIN = Rewriter((r"\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}", r"\1"), (r"\s+", " "))
_AROUND = "*`\"'“” "


class TextReader:
    """Reads answers in words; a :class:`~soft_reasoning.answers.reader.Reader`."""

    def read(self, statement: str) -> Found | None:
        start, stop = first_line(statement)
        line = _PLAIN(statement[start:stop])
        begin = len(line) - len(line.lstrip(_AROUND))
        sentence_end = _END.search(line, begin)
        answer = line[begin : sentence_end.start() if sentence_end else len(line)].rstrip(_AROUND)
        if not answer:
            return None
        if REFUSAL.search(answer):
            return Found(None)
        return Found(answer, begin, begin + len(answer), _PLAIN, start, stop)

    def opens(self, statement: str) -> bool:
        return False

    def close(self, text: str) -> Found | None:
        return None

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return _plain_words(a) == _plain_words(b)


def _plain_words(text: str) -> str:
    """Text for comparison: case, articles and punctuation apart, but for "-5", "1.5" and "C++"."""
    words = _SIGNS.sub(lambda found: found[1] or " ", text.casefold().replace("−", "-")).split()
    return " ".join(word for word in words if word not in ("a", "an", "the")) or text.strip().casefold()
