"""Tasks of a new user with their times: a table of commands and seconds.

    python experiments/user_tasks.py [TASK ...]

It runs in an empty folder and needs the extras serve and test. With names it runs only these tasks.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUESTION = "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"
KINDS = [
    {"question": QUESTION, "answer": 13},
    {"question": "Which is prime?", "choices": ["21", "23"], "answer": "B", "answer_type": "choice"},
    {"question": "Is 91 divisible by 7?", "answer": "yes", "answer_type": "boolean"},
    {"question": "What is the capital of Japan?", "answer": "Tokyo", "answer_type": "text"},
    {"question": "Expand (x + 2)(x - 3).", "answer": "x^2 - x - 6", "answer_type": "latex"},
]
TEST = f"{sys.executable} -m pytest -q -p no:cacheprovider {ROOT}/tests"
OWN = f"{sys.executable} {ROOT}/experiments/bring_your_own_optimiser.py --problems 1"
RUN = "soft-reasoning run progress=false"
NOISY = (
    "import torch; from soft_reasoning import SoftReasoner; "
    f"reasoner = SoftReasoner.from_pretrained('demo'); question = '{QUESTION}'; "
    "objective = reasoner.objective(question, noise_std=0.1, seed=1, dim=8); "
    "print(objective(torch.zeros(2, 8, dtype=torch.double)))"
)
TASKS = {
    "the first run": f"{RUN} limit=20",
    "the same, greedy": f"{RUN} limit=20 method=cot",
    "methods compared": "soft-reasoning compare cot 'verified_sampling k=5' limit=10 progress=false",
    "short options": f"{RUN} limit=5 k=3 rounds=1 temperature=0.7",
    "own CSV": f"{RUN} dataset=custom dataset.path=own.csv",
    "own questions of five kinds": f"{RUN} dataset=kinds.jsonl method=mixed_consistency",
    "the same, another tolerance": "soft-reasoning regrade runs/kinds-* grader.absolute=0.01",
    "a model in a folder": f"{RUN} limit=2 model={ROOT}/soft_reasoning/demo/model",
    "one problem explained": "soft-reasoning show runs/demo-soft_reasoning-limit_20 demo-test-0",
    "a mistyped option": f"{RUN} limt=3; test $? = 2",
    "a sweep with its tables": f"{RUN} limit=3 seed=0,1 method=cot,self_consistency -m",
    "the rehearsal of docs/reproduce.md": f"{RUN} +experiment=llama_zero model=demo dataset=demo limit=5",
    "what a table's rows run": "soft-reasoning run +experiment=paper_main_result --cfg job",
    "an objective with noise, seed and dimension": f'{sys.executable} -c "{NOISY}"',
    "a search of one's own": OWN,
    "its regret curve": f"{OWN} --regret r.svg",
    **{
        name: f"{TEST}/{tests}"
        for name, tests in {
            "own verifier, reward, rule": "test_own_parts.py",
            "a haiku through the server": "test_open_answers.py -k haiku",
            "free text, JSON, code": "test_open_answers.py -k 'free_text or reading or agreement'",
            "a kind of answer for each question": "test_answer_types.py",
            "JSON through the server": "serve/test_server_json.py",
            "a stream of the server": "serve/test_server_answers.py -k 'line_at_once'",
            "a model that thinks": "test_open_answers.py -k 'think or thoughts'",
            "openai client, harmless fields": "serve/test_server_answers.py -k 'fields or chat'",
            "lm-evaluation-harness": "serve/test_harness.py",
            "the server's process": "serve/test_server_command.py",
            "CUDA, MPS or CPU (mocked)": "engine/test_devices.py -k device",
            "8 billion parameters on 24 GB (arithmetic)": "engine/test_devices.py -k card",
        }.items()
    },
    "an answer from Python": f'{sys.executable} -c "from soft_reasoning import SoftReasoner; '
    f"print(SoftReasoner.from_pretrained('demo').solve('{QUESTION}').answer)\"",
}


def main() -> None:
    print("| task | command | seconds | |\n| --- | --- | ---: | --- |")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "own.csv").write_text(f"question,answer\n{QUESTION},13\n")
        Path(folder, "kinds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in KINDS))
        for task, command in TASKS.items():
            if sys.argv[1:] and task not in sys.argv[1:]:
                continue
            start = time.perf_counter()
            process = subprocess.run(
                command, shell=True, cwd=folder, capture_output=True, env={**os.environ, "PATH": path}
            )
            spent, shown = time.perf_counter() - start, command.replace(str(ROOT), ".").replace("|", "\\|")
            print(
                f"| {task} | `{shown}` | {spent:.1f} | {'' if process.returncode == 0 else 'failed'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
