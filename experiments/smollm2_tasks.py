"""Questions that suit a small real model: `python -m experiments.smollm2_tasks` writes them to tasks/.

`numbers-SPLIT.jsonl` holds sums, products and comparisons of two numbers, `facts-SPLIT.jsonl` yes-or-no
questions; SPLIT is validation or test, and no question is in both. `NAME.yaml` holds exemplars.
Then `soft-reasoning run +experiment=smollm2` solves a few, and `+experiment=smollm2_compare` makes the table.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

VALIDATION, TEST = 60, 240  # questions about numbers
FACTS = (  # (true, false) pairs of the same kind, so that answering only "yes" scores half
    ("Is Paris the capital of France?", "Is Paris the capital of Spain?"),
    ("Is a whale a mammal?", "Is a shark a mammal?"),
    ("Does ice float on water?", "Does iron float on water?"),
    ("Is the Sun a star?", "Is the Moon a star?"),
    ("Do spiders have eight legs?", "Do insects have eight legs?"),
    ("Is Tokyo in Japan?", "Is Tokyo in China?"),
    ("Is gold a metal?", "Is wood a metal?"),
    ("Can penguins swim?", "Can penguins fly?"),
    ("Is the Nile in Africa?", "Is the Amazon in Africa?"),
    ("Do plants need light to grow?", "Do stones need light to grow?"),
    ("Does a week have seven days?", "Does a week have ten days?"),
    ("Is water made of hydrogen and oxygen?", "Is water made of carbon and oxygen?"),
    ("Is Jupiter larger than Earth?", "Is Mars larger than Earth?"),
    ("Did Shakespeare write Hamlet?", "Did Shakespeare write War and Peace?"),
    ("Is a tomato a plant?", "Is a mushroom an animal?"),
    ("Is the Pacific an ocean?", "Is the Sahara an ocean?"),
    ("Do bees make honey?", "Do butterflies make honey?"),
    ("Is Berlin in Germany?", "Is Vienna in Germany?"),
    ("Is a square a rectangle?", "Is a circle a rectangle?"),
    ("Do cows eat grass?", "Do lions eat grass?"),
    ("Is 17 a prime number?", "Is 21 a prime number?"),
    ("Is Mount Everest in Asia?", "Is Mount Everest in Europe?"),
    ("Does a triangle have three sides?", "Does a triangle have four sides?"),
    ("Is French spoken in Canada?", "Is Greek spoken in Brazil?"),
    ("Is the heart an organ?", "Is the hair an organ?"),
    ("Is steel harder than butter?", "Is butter harder than steel?"),
    ("Is a minute longer than a second?", "Is a second longer than a minute?"),
    ("Can a cat climb a tree?", "Can a fish climb a tree?"),
    ("Is snow cold?", "Is fire cold?"),
    ("Do birds lay eggs?", "Do dogs lay eggs?"),
    ("Is Rome older than New York?", "Is New York older than Rome?"),
    ("Is Australia an island?", "Is Switzerland an island?"),
    ("Is an elephant heavier than a mouse?", "Is a mouse heavier than an elephant?"),
    ("Do humans breathe oxygen?", "Do fish live on the Moon?"),
    ("Is English written from left to right?", "Is Arabic written from left to right?"),
    ("Does the Earth go around the Sun?", "Does the Sun go around the Earth?"),
    ("Is salt used in cooking?", "Is cement used in cooking?"),
    ("Did the Romans speak Latin?", "Did the Romans speak English?"),
    ("Are there twelve months in a year?", "Are there ten months in a year?"),
    ("Is a violin a musical instrument?", "Is a hammer a musical instrument?"),
)

EXEMPLARS = {  # question, thought, answer
    "numbers": (
        ("What is 34 + 25?", "34 + 25 = 59.", "59"),
        ("Which number is larger, 18 or 93?", "93 is larger than 18.", "93"),
        ("What is 8 times 7?", "8 * 7 = 56.", "56"),
        ("Which number is larger, 64 or 46?", "64 is larger than 46.", "64"),
        ("What is 47 + 36?", "47 + 36 = 83.", "83"),
        ("What is 3 times 12?", "3 * 12 = 36.", "36"),
    ),
    "facts": (
        ("Is milk white?", "Milk is white.", "True"),
        ("Is a horse a bird?", "A horse is a mammal.", "False"),
        ("Is Madrid in Spain?", "Madrid is the capital of Spain.", "True"),
        ("Is the Moon larger than the Earth?", "The Moon is smaller than the Earth.", "False"),
    ),
}


def number_questions() -> list[dict[str, str]]:
    """Sums, products and comparisons in turn, each question once."""
    rng = random.Random(0)
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < VALIDATION + TEST:
        kind = ("sum", "product", "larger")[len(rows) % 3]
        a, b = rng.sample(range(11, 100), 2)
        if kind == "product":
            a, b = rng.sample(range(2, 13), 1)[0], rng.randrange(3, 20)
        answer = {"sum": a + b, "product": a * b, "larger": max(a, b)}[kind]
        question = {
            "sum": f"What is {a} + {b}?",
            "product": f"What is {a} times {b}?",
            "larger": f"Which number is larger, {a} or {b}?",
        }[kind]
        rows.setdefault(question, {"kind": kind, "question": question, "answer": str(answer)})
    return list(rows.values())


def fact_questions() -> list[dict[str, str]]:
    """True and false questions in turn."""
    pairs = random.Random(0).sample(FACTS, len(FACTS))
    return [
        {"kind": "fact", "question": question, "answer": answer}
        for pair in pairs
        for question, answer in zip(pair, ("True", "False"), strict=True)
    ]


def write(folder: Path) -> None:
    """Write the questions and their exemplars."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows, cut in (("numbers", number_questions(), VALIDATION), ("facts", fact_questions(), 20)):
        for split, part in (("validation", rows[:cut]), ("test", rows[cut:])):
            lines = [json.dumps(row) + "\n" for row in part]
            (folder / f"{name}-{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    for name, exemplars in EXEMPLARS.items():
        keys = ("question", "thought", "answer")
        content = [dict(zip(keys, entry, strict=True)) for entry in exemplars]
        text = json.dumps(content, indent=1) + "\n"  # JSON is YAML, too
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path("tasks"))
