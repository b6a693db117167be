r"""Extracting answers from free text, comparing them, voting and grading.

An answer is canonical text: a number as plain decimal (``18`` for ``18``, ``18.`` and ``18.0``), a boolean as
``True`` or ``False``, a choice as its letter, LaTeX and text stripped. ``None`` means no answer. ``open``
(any text), ``json`` and ``code`` are read from the whole text (``text``), others as follows.

How a text is read (``extraction=flexible``):

1. Reasoning in ``<think>`` is ignored; the text ends where the model continues with another question.
2. The last statement that can be read is the answer (``statements``): the text after "Answer:", ``####`` or
   "the answer is", the content of ``\boxed{}``, ``<answer>`` or a key of JSON, or a correction
   ("Wait, ...").
3. Without a statement, the last sentence that holds an answer gives it.

An ambiguous text has no answer. ``extraction=strict`` reads only the rest of the line after the first
"Answer:". ``external`` holds graders that read exactly as lm-evaluation-harness and Math-Verify do.

>>> extract("16 - 3 - 4 = 9 eggs, 9 * 2 = $18. Answer: $18.00", "number")
'18'
>>> equal("18.0", "18", "number"), Grader().vote(["7", "18", None, "18.0"], "number")
(True, '18')
"""

from soft_reasoning.answers.external import LmEvalGrader, MathVerifyGrader
from soft_reasoning.answers.grading import (
    ANSWER_TYPES,
    MODES,
    AnswerGrader,
    Grader,
    equal,
    extract,
    locate,
)
from soft_reasoning.answers.text import FREE

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
]
