"""Questions through the server against one batched call: python experiments/bench_server.py [--method cot]

The same bundled test questions two ways, each with a newly loaded model: one SoftReasoner.solve of all, and
requests of clients to a server in this process. The clients are OpenAI's, in a separate process, so that
their CPU time is counted separately.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time

import openai

from soft_reasoning import SoftReasoner
from soft_reasoning.lab.data.demo import demo_dataset
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.serve.app import base_url, bind, build_server
from soft_reasoning.serve.service import Service
from soft_reasoning.serve.settings import Settings

WARM = "Ada has 5 cards. Ada gets 3. How many cards does Ada have now?"


async def ask_all(url: str, questions: list[str], clients: int) -> list[str | None]:
    """The answers to the clients, None for an error; each client sends its next question after an answer."""
    todo, answers = iter(enumerate(questions)), list[str | None]([None] * len(questions))
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=3600) as client:

        async def work() -> None:
            for i, question in todo:
                try:
                    completion = await client.chat.completions.create(
                        model="demo", messages=[{"role": "user", "content": question}]
                    )
                    answers[i] = completion.choices[0].message.content
                except openai.OpenAIError as error:
                    print(f"error: {error}", file=sys.stderr)

        await asyncio.gather(*(work() for _ in range(clients)))
    return answers


def clients_main(url: str, clients: int) -> None:
    """The process of the clients: questions on standard input, answers and seconds on standard output."""
    questions = json.load(sys.stdin)
    cpu, wall = time.process_time(), time.perf_counter()
    answers = asyncio.run(ask_all(url, questions, clients))
    json.dump([answers, time.process_time() - cpu, time.perf_counter() - wall], sys.stdout)


def answer_by_server(reasoner: SoftReasoner, questions: list[str], clients: int) -> list:
    """Answers through a server, and the clients' CPU seconds and wall seconds, without their start."""
    settings = Settings(port=0, max_seconds=3600.0)
    listening = bind(settings)
    server = build_server(Service(reasoner, settings, "demo"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        command = [sys.executable, __file__, "--url", base_url(listening), "--clients", str(clients)]
        process = subprocess.run(
            command,
            input=json.dumps(questions),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ,
        )
    finally:
        server.should_exit = True
        thread.join()
    return json.loads(process.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="cot")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument(
        "--repeats", type=int, default=1, help="the table has the least CPU seconds of each way"
    )
    parser.add_argument("--url", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.url:
        clients_main(args.url, args.clients)
        return
    questions = [problem.question for problem in demo_dataset(name="demo", limit=args.questions).problems()]
    call, server = "one call", f"server, {args.clients} clients"
    answers: dict[str, list] = {}
    spent: dict[str, list[tuple[float, float, float]]] = {call: [], server: []}
    for _ in range(args.repeats):
        for way, used in spent.items():
            with SoftReasoner.from_pretrained("demo", method=args.method) as reasoner:
                reasoner.solve(WARM)
                cpu, start, client_seconds = time.process_time(), time.perf_counter(), 0.0
                if way == server:
                    answers[way], client_seconds, wall = answer_by_server(reasoner, questions, args.clients)
                else:
                    answers[way] = [solution.text for solution in reasoner.solve(questions)]
                    wall = time.perf_counter() - start
                used.append((time.process_time() - cpu, wall, client_seconds))
    least = {way: min(used) for way, used in spent.items()}
    rows = [
        (way, *(f"{value:.1f}" for value in (wall, cpu, used))) for way, (cpu, wall, used) in least.items()
    ]
    ratios = [f"{least[server][i] / least[call][i]:.2f}" for i in (1, 0)]
    rows.append(("ratio", *ratios, ""))
    print(Table((f"method={args.method}", "wall s", "CPU s", "clients' CPU s"), rows).markdown())
    differ = sum(a != b for a, b in zip(answers[call], answers[server], strict=True))
    print(f"\n{len(questions)} questions, {args.clients} clients; answers that differ or failed: {differ}")


if __name__ == "__main__":
    main()
