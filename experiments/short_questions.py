"""Answers of type text: what is read today, and what asking once more for the line would add.

    soft-reasoning run dataset=experiments/short_questions.jsonl dataset.answer_type=text prompt=text \\
        method=cot max_new_tokens=200 engine=llamacpp model=FILE.gguf hydra.run.dir=RUN
    python -m experiments.short_questions RUN FILE.gguf

``short_questions.jsonl`` holds 200 questions of our own with a word or a few for an answer. The script asks
the model again after each text whose answer could not be read.
"""

import argparse

from soft_reasoning import SoftReasoner
from soft_reasoning.answers import Grader
from soft_reasoning.engine.served.opening import llamacpp
from soft_reasoning.lab.runs.records import in_order, read_records

AGAIN = 'Give the answer again, alone, on one line that begins with "Answer:".'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("model")
    arguments = parser.parse_args()
    grader, records = Grader(), in_order(read_records(arguments.run))
    unread = [record for record in records if record.result.answer is None]
    read, right = len(records) - len(unread), sum(record.exact_match or 0 for record in records)
    print(f"today: {read} of {len(records)} read, {right:.0f} right, {read - right:.0f} wrong")
    with SoftReasoner.from_pretrained(
        arguments.model,
        engine=llamacpp(arguments.model, threads=1),
        prompt="any",
        method="cot",
        max_tokens=24,
        cache=arguments.run,
    ) as reasoner:
        chats = [
            [
                {"role": "user", "content": record.problem.question},
                {"role": "assistant", "content": record.result.candidates[0].text},
                {"role": "user", "content": AGAIN},
            ]
            for record in unread
        ]
        solutions = reasoner.solve(chats, progress=True)
    found = correct = 0
    for record, solution in zip(unread, solutions, strict=True):
        answer = grader.extract(solution.text, "text")
        found, correct = found + (answer is not None), correct + bool(grader.correct(answer, record.problem))
        print(
            f"{record.problem.gold!r:24} {record.result.candidates[0].text[-60:]!r} -> {solution.text!r:.60}"
        )
    tokens = sum(solution.generated_tokens for solution in solutions)
    print(f"asked again: {found} of {len(unread)} read, {correct} right, {tokens} more tokens")


if __name__ == "__main__":
    main()
