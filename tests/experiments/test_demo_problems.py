"""The bundled problems and the training text: what they promise, checked on the text itself."""

import random

from experiments.demo.problems import make_split
from experiments.demo.reviews import is_right, review, sound
from experiments.demo.solutions import AUTHORS, HABITS, LAYOUTS, equations, solve, write

PROBLEMS = make_split("train", 400)


def test_without_habits_every_solution_is_right_and_each_habit_harms():
    for problem in PROBLEMS:
        assert equations(problem, frozenset())[-1].result == problem.answer
    for habit in HABITS:
        wrong = [p for p in PROBLEMS if equations(p, frozenset({habit}))[-1].result != p.answer]
        assert len(wrong) > 20, habit


def test_a_solution_is_right_if_every_step_is_sound_and_none_is_missing():
    for problem in PROBLEMS:
        for habit in (None, *HABITS):
            steps = equations(problem, frozenset({habit} if habit else ()))
            solution = write(steps, LAYOUTS["plain"], "We", problem.objects)
            right = steps == equations(problem, frozenset())
            assert is_right(problem, solution) == right
            assert all(sound(problem, solution)) == right or habit == "ask"


def test_reviewers_take_a_right_answer_and_else_attempt_it_like_an_author():
    rng = random.Random(0)
    correct = 0
    for problem in PROBLEMS:
        good = write(equations(problem, frozenset()), LAYOUTS["plain"], "We", problem.objects)
        bad = [s for s in (solve(problem, rng) for _ in range(5)) if not is_right(problem, s)]
        shown = [*bad, good, *bad]
        text = "".join(piece for piece, _ in review(problem, shown, rng))
        assert text == f"Answer: {problem.answer}\n"
        text = "".join(piece for piece, _ in review(problem, shown, rng, judge=True))
        assert text == f"Correct: {len(bad) + 1}\n"
        text = "".join(piece for piece, _ in review(problem, bad, rng, judge=True))
        assert text == "Correct: None\n"
        text = "".join(piece for piece, _ in review(problem, bad, rng))
        assert text.split(" ")[0].rstrip(",:") in {word for a in AUTHORS for word in a.openers}
        correct += f"Answer: {problem.answer}\n" in text
    assert correct < 0.5 * len(PROBLEMS)
