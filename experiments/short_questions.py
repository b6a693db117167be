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

BLOCK = 48
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
        found = correct = tokens = 0
        for count, (record, chat) in enumerate(zip(unread, chats, strict=True), 1):
            if count % BLOCK == 1:
                solutions = iter(reasoner.solve(chats[count - 1 : count - 1 + BLOCK]))
            solution = next(solutions)
            answer = grader.extract(solution.text, "text")
            found, tokens = found + (answer is not None), tokens + solution.generated_tokens
            correct += bool(grader.correct(answer, record.problem))
            print(f"{record.problem.gold!r:24} {chat[1]['content'][-60:]!r} -> {solution.text!r:.60}")
            if count % BLOCK == 0 or count == len(unread):
                print(
                    f"asked again: {found} of {count} read, {correct} right, {tokens} more tokens", flush=True
                )


if __name__ == "__main__":
    main()
