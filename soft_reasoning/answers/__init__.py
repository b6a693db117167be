r"""Extracting answers from free text, comparing them, voting and grading.

An answer is canonical text: a number as plain decimal (``18`` for ``18``, ``18.`` and ``18.0``) or as the
fraction that is written (``3/10``; numbers are compared by value), a boolean as
``True`` or ``False``, a choice as its letter, LaTeX and text stripped. ``None`` means no answer. ``open``
(any text), ``json`` and ``code`` are read from the whole text (``text``), others as follows.

How a text is read (``extraction=flexible``):

1. Thoughts are left out; the text ends where the model continues with another question.
2. The first sentence after the last mark is the answer: the content of ``\boxed{}`` or ``<answer>`` or of a
   key of JSON, or what stands after "Answer:", ``####`` or "the answer is". A statement that a limit cut off
   is not an answer.
3. Without a mark, or where prose follows it, the last sentence gives the answer; for numbers the last one
   with a number. A check of the result or a note at the end is not read.
4. A sentence must hold its value where it decides: a verdict at its beginning; a letter or an option's text
   at its beginning, or without a mark in a form that means an option; one number, or the first on the right
   side of an equation. A number is a word that matches one pattern as a whole.

Everything else is no answer: a text that can be meant in two ways is not read, and no phrase is added to this
list. ``extraction=strict`` reads only the rest of the line after the first "Answer:". ``external`` holds
graders that read exactly as lm-evaluation-harness and Math-Verify do.

>>> extract("16 - 3 - 4 = 9 eggs, 9 * 2 = $18. Answer: $18.00", "number")
'18'
>>> equal("18.0", "18", "number"), Grader().vote(["7", "18", None, "18.0"], "number")
(True, '18')
"""

from soft_reasoning.answers.external import LmEvalGrader, MathVerifyGrader
from soft_reasoning.answers.grading import AnswerGrader, Grader, equal
from soft_reasoning.answers.reading import ANSWER_TYPES, MODES, extract, locate, read_value

FREE = ("open",)
"""Types whose answers differ in words even where they agree, so that a verifier has to choose."""

__all__ = [
    "ANSWER_TYPES",
    "FREE",
    "MODES",
    "AnswerGrader",
    "Grader",
    "LmEvalGrader",
    "MathVerifyGrader",
    "equal",
    "extract",
    "locate",
    "read_value",
]
