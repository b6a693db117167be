"""The bundled problems and the training text: what they promise, checked on the text itself."""

import random
import re

import pytest

from soft_reasoning.demo.problems import LARGEST, LEVELS, apply, draw, make_split
from soft_reasoning.demo.prompts import build_tokenizer, review_prompt, solve_prompt
from soft_reasoning.demo.solutions import AUTHORS, HABITS, LAYOUTS, Solution, equations, review, solve, write

PROBLEMS = make_split("train", 400)


def test_a_seed_is_a_data_set():
    assert make_split("test", 50) == make_split("test", 50)


def test_splits_share_no_question():
    splits = [{p.question for p in make_split(s, 500)} for s in ("train", "validation", "test")]
    assert len(set.union(*splits)) == 1500


def test_make_split_leaves_out_what_it_is_told_to():
    taken = {p.question for p in make_split("test", 20)}
    assert not taken & {p.question for p in make_split("test", 20, exclude=taken)}


@pytest.mark.parametrize("level", LEVELS)
def test_values_stay_in_range_and_the_answer_is_theirs(level):
    rng = random.Random(7)
    for _ in range(300):
        problem = draw(rng, level)
        value = problem.start
        for event in problem.events:
            if event.kind == "share":
                assert value % event.a == 0
            value = apply(event, value)
            assert 1 <= value <= LARGEST
        final = {"now": value, "worth": value * problem.extra, "together": value + problem.extra}
        assert problem.answer == final[problem.ask]
        count = sum(e.kind != "other" for e in problem.events)
        assert LEVELS[level][0] <= count <= LEVELS[level][1]


@pytest.mark.parametrize("author", AUTHORS, ids=lambda a: a.openers[0])
def test_equations_hold_and_the_answer_is_the_last_result(author):
    for problem in PROBLEMS[:100]:
        solution = write(equations(problem, author.habits), author.layout, author.openers[0], problem.objects)
        assert solution.body.startswith(author.openers[0])
        assert solution.body.endswith(f"Answer: {solution.answer}")
        for a, sign, b, result in re.findall(r"(\d+) ([-+x/]) (\d+) = (\d+)", solution.body):
            a, b, result = int(a), int(b), int(result)
            assert result == {"+": a + b, "-": max(a - b, 0), "x": a * b, "/": a // b}[sign]


def test_without_habits_every_solution_is_right_and_each_habit_harms():
    for problem in PROBLEMS:
        assert equations(problem, frozenset())[-1].result == problem.answer
    for habit in HABITS:
        wrong = [p for p in PROBLEMS if equations(p, frozenset({habit}))[-1].result != p.answer]
        assert len(wrong) > 20, habit


def test_reviewers_follow_a_right_solution_and_otherwise_most():
    rng = random.Random(0)
    right = wrong = alone = 0
    for problem in PROBLEMS:
        good = write(equations(problem, frozenset()), LAYOUTS["plain"], "We", problem.objects)
        bad = Solution("1) 1 + 1 = 2.\nAnswer: -1", -1, good.steps[:-1])
        right += review(problem, [bad, bad, good], rng).answer == problem.answer
        wrong += review(problem, [bad, bad], rng).steps == bad.steps
        alone += review(problem, [], rng).answer == problem.answer
    assert right > 0.9 * len(PROBLEMS) and wrong == len(PROBLEMS) and alone < 0.7 * len(PROBLEMS)


def test_tokenizer_gives_text_back_letter_for_letter(tmp_path):
    from transformers import AutoTokenizer

    rng = random.Random(1)
    texts = [
        solve_prompt(p.question) + solve(p, rng).body + review_prompt(p.question, [solve(p, rng).body])
        for p in PROBLEMS
    ]
    build_tokenizer(texts).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for text in texts[:50]:
        ids = tokenizer.encode(text)
        assert ids[0] == tokenizer.bos_token_id and tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids[1:]) == text
    assert tokenizer.unk_token_id in tokenizer.encode("zebra")
