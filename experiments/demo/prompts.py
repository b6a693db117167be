"""The demo model's prompt formats, as in the training text, and its tokenizer.

``conf/prompts/demo.yaml`` repeats the formats for runs; a test checks that both agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.demo.problems import NAMES, OBJECTS, WordProblem

SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

CONTEXT = 1536
"""Maximum number of tokens of a prompt and its completion."""

PIECES = r"^[0-9]{1,2}\.| ?[A-Za-z]+| ?[0-9]\)| ?[0-9]{1,2}(?![0-9])| ?[0-9]|\n| ?[^A-Za-z0-9\s]| "
"""A token is a line's number ("2."), a word, an event's number ("2)"), a number up to 99 or a sign, each with
the space before it, or a line break. Numbers are one token, so that looking one up or copying it is one step;
of larger ones the last two digits are."""


def solve_prompt(question: str) -> str:
    """Return the prompt for a solution of ``question``."""
    return f"Question:\n{question}\nThought:\n"


def review_prompt(question: str, solutions: Sequence[str], task: str = "Analysis:\n") -> str:
    """Return the prompt for a review of ``solutions``, which are numbered, one line each.

    ``task`` is "Analysis:" (answer the question) or "Judge:" (name the solutions that are right).
    """
    listed = "\n".join(f"{i}. {flatten(s)}" for i, s in enumerate(solutions, start=1))
    return f"Question:\n{question}\nSolutions:\n{listed}\n{task}"


def steps_prompt(question: str, steps: Sequence[tuple[str, str]]) -> str:
    """The text before the next sub-question: ``steps`` are (sub-question, its answer) pairs."""
    done = "".join(f"Q: {sub_question}\nA: {answer}\n" for sub_question, answer in steps)
    return f"Question:\n{question}\nSteps:\n{done}"


def flatten(text: str) -> str:
    """One line, single spaces."""
    return " ".join(text.split())


def verdict(right: Sequence[int]) -> str:
    """The judge's text: the numbers (from 1) of the solutions that it considers right."""
    return "Correct: " + (", ".join(map(str, right)) if right else "None")


WORDS = (*NAMES, *OBJECTS, "True", "False", "Yes", "No", "None")
NUMBERS = (*map(str, range(100)), *(f"{digit:02}" for digit in range(10)))
LINES = tuple(f"{number}." for number in range(1, 21))
ALWAYS = (*NUMBERS, *LINES, *(f"{digit})" for digit in range(10)), *WORDS, *".,:;?!+-x/=()'$%")
"""Always in the vocabulary, each with and without a space before it."""


def build_tokenizer(texts: Iterable[str]):
    """Return a ``PreTrainedTokenizerFast`` with a closed word vocabulary over ``texts``.

    Unknown words become ``<unk>``. Encoding then decoding known text gives it back letter for letter.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    known = {piece for text in texts for piece, _ in splitter.pre_tokenize_str(text)}
    known |= {f"{space}{piece}" for space in ("", " ") for piece in ALWAYS}
    vocabulary = {token: i for i, token in enumerate([*SPECIAL_TOKENS.values(), *sorted(known)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS["unk_token"]))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.Fuse()
    bos = SPECIAL_TOKENS["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
        **SPECIAL_TOKENS,
    )


def problem_row(problem: WordProblem, split: str, number: int) -> dict:
    """The JSON row of a bundled problem."""
    return {
        "id": f"demo-{split}-{number}",
        "question": problem.question,
        "answer": str(problem.answer),
        "difficulty": problem.difficulty,
    }
