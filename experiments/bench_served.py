"""What a server costs: llama.cpp beside engine=hf on one GGUF file, and the transport's own time per request.

    python -m experiments.bench_served engines --model qwen25_coder_0_5b --threads 1
    python -m experiments.bench_served transport
    python -m experiments.bench_served candidates --environment FOLDER

``engines`` loads the file in a process for each engine, and decodes 16 tokens (llama.cpp 48, as it reads more
of the prompts again) after a prompt of 192 for 1, 5, 10 and 40 rows: seconds to load, memory of the process
and of its server, and tokens per second.
``transport`` sends requests to a server that computes nothing, with 1, 32 and 256 in flight: CPU milliseconds
of this process per request, for a prompt of 200 ids, for its rows and for one row in its text, and the memory
after 10,000 requests.
``candidates`` sends soft tokens of width 4,096 after 299 ids to vLLM on this CPU, alone and with all rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from soft_reasoning.configuration.data import read_model
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.paths import DEMO_FOLDER
from soft_reasoning.engine.served import llamacpp, served, vllm
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.types import Request, Sampling

ROWS, PROMPT = (1, 5, 10, 40), 192
PROMPT_TEXT = "A train leaves the town at nine and goes at 60 km an hour. " * 20
ENGINES = ("hf float32", "hf bfloat16", "llamacpp")


def engines(model: str, threads: int) -> Table:
    """A row for each engine, each measured in a process of its own."""
    rows = []
    for name in ENGINES:
        command = [sys.executable, "-m", __spec__.name, "one", "--model", model, "--threads", str(threads)]
        done = subprocess.run([*command, "--engine", name], stdout=subprocess.PIPE, text=True, check=True)
        rows.append([name, *json.loads(done.stdout.splitlines()[-1])])
        print(*rows[-1], file=sys.stderr)
    columns = ["engine", "loading, s", "memory, GB", *(f"{n} rows, tokens/s" for n in ROWS)]
    return Table(columns, rows)


def one(model: str, threads: int, name: str) -> list[str]:
    """Loading, memory and speed of one engine, as text."""
    path, start = read_model(model).values["path"], perf_counter()
    torch.set_num_threads(threads)
    if name == "llamacpp":
        engine = llamacpp(path, threads=threads, parallel=max(ROWS), context=512)
    else:
        engine = HuggingFaceEngine(path, dtype=name.split()[1], threads=threads)
    loading, speeds = perf_counter() - start, []
    ids = engine.tokenizer.encode(PROMPT_TEXT)[:PROMPT]
    for rows in ROWS:
        requests = [
            Request(
                (*ids[:-1], ids[-1 - i % 9]),
                sampling=Sampling(0.8, 50),
                seed=i,
                max_new_tokens=48 if name == "llamacpp" else 16,
            )
            for i in range(rows)
        ]
        engine.generate([Request(r.prompt_ids, max_new_tokens=1) for r in requests])  # the prompts are cached
        start = perf_counter()
        runs = engine.generate(requests)
        speeds.append(f"{sum(run.generated_tokens for run in runs) / (perf_counter() - start):.1f}")
    process = psutil.Process()
    family = [process, *process.children(recursive=True)]
    memory = sum(member.memory_info().rss for member in family) / 1e9
    engine.close()
    return [f"{loading:.1f}", f"{memory:.1f}", *speeds]


class Nothing(BaseHTTPRequestHandler):
    """Answers every completion with the same token."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a reply is one packet

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._reply({"data": [{"id": "nothing", "max_model_len": 4096}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids = range(1000) if body.get("logprobs") == -1 else body.get("logprob_token_ids") or ()
        named = {f"token_id:{i}": -1.0 for i in ids}
        marks = {
            "tokens": ["token_id:5"],
            "token_logprobs": [-1.0],
            "top_logprobs": [{"token_id:5": -1.0, **named}],
        }
        tokens = len(body["prompt"]) if isinstance(body.get("prompt"), list) else int(sys.argv[-1])
        choice = {"text": "x", "finish_reason": "length", "logprobs": marks}
        self._reply({"choices": [choice], "usage": {"prompt_tokens": tokens, "completion_tokens": 1}})

    def _reply(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def transport(requests: int) -> Table:
    """CPU milliseconds of this process per request."""
    from soft_reasoning.engine.served.engine import TEXT
    from soft_reasoning.engine.served.opening import load_files

    files = load_files(str(DEMO_FOLDER), {"revision": None, "trust_remote_code": False})
    command = [sys.executable, "-m", __spec__.name, "nothing", str(len(files.tokenizer.encode(TEXT)))]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port, rows, process = int(server.stdout.readline()), [], psutil.Process()
        for in_flight in (1, 32, 256):
            engine = served(f"http://127.0.0.1:{port}/v1", tokenizer=str(DEMO_FOLDER), concurrency=in_flight)
            cells, token = [], engine.embed([5])
            text = tuple(engine.tokenizer.encode(PROMPT_TEXT)[:199])
            sevens = (7,) * 199  # its text would have other ids
            for ids, soft in ((text, None), (sevens, token), (text, token)):
                asked = [Request(ids, soft=soft, max_new_tokens=1) for _ in range(max(200, in_flight))]
                engine.generate(asked)
                start = process_time()
                engine.generate(asked)
                cells.append(f"{1000 * (process_time() - start) / len(asked):.2f}")
            before = process.memory_info().rss
            for _ in range(requests // 500):
                engine.generate([Request((7,) * 199, max_new_tokens=1)] * 500)
            cells.append(f"{(process.memory_info().rss - before) / 1e6:+.1f}")
            rows.append([str(in_flight), *cells])
            engine.close()
    finally:
        server.kill()
    columns = ["in flight", "ids, ms", f"rows of {engine.hidden_size}, ms", "one row in text, ms"]
    columns.append(f"MB after {requests:,} more")
    return Table(columns, rows)


def _ask(engine: Engine, ids: tuple[int, ...]) -> None:
    softs = [engine.embed([5]) + torch.randn(1, engine.hidden_size) * engine.embedding_rms for _ in range(5)]
    engine.generate([Request(ids, soft=soft, max_new_tokens=1) for soft in softs])


def candidates(environment: str) -> Table:
    """Milliseconds for each of five candidates on vLLM, whose random model of width 4,096 has one layer."""
    tokenizer = AutoTokenizer.from_pretrained(DEMO_FOLDER)
    sizes = {
        "hidden_size": 4096,
        "intermediate_size": 64,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    config = AutoConfig.for_model(
        "llama", vocab_size=len(tokenizer), num_hidden_layers=1, max_position_embeddings=1024, **sizes
    )
    with TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        flags = {"enforce_eager": True, "block_size": 32, "enable_chunked_prefill": False}
        engine = vllm(folder, environment=environment, dtype="float32", **flags)
        ids, rows = tuple(tokenizer.encode(PROMPT_TEXT)[:299]), []
        for name, offers in (
            ("one row in text", engine.offers),
            ("all in rows", engine.offers - {"splices"}),
        ):
            engine.offers = offers
            _ask(engine, ids)  # fills the cache
            start, used = perf_counter(), process_time()
            for _ in range(8):
                _ask(engine, ids)
            spent = perf_counter() - start, process_time() - used
            rows.append([name, *(f"{1000 * seconds / 40:.1f}" for seconds in spent)])
        engine.close()
    return Table(["prompt", "ms", "ms of CPU time here"], rows)


def main() -> None:
    if sys.argv[1:2] == ["nothing"]:
        with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
            print(server.server_port, flush=True)
            server.serve_forever()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["engines", "transport", "candidates", "one"])
    parser.add_argument("--model", default="qwen25_coder_0_5b")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--environment", help="the virtual environment with vLLM, for candidates")
    arguments = parser.parse_args()
    if arguments.part == "one":
        print(json.dumps(one(arguments.model, arguments.threads, arguments.engine)))
    elif arguments.part == "engines":
        print(engines(arguments.model, arguments.threads).markdown())
    elif arguments.part == "candidates":
        print(candidates(arguments.environment).markdown())
    else:
        print(transport(arguments.requests).markdown())


if __name__ == "__main__":
    main()
