"""Answers by a JSON Schema: python -m experiments.schemas [--model qwen25_coder_0_5b] [--out FILE.md]

Ten schemas, one request each through the server, with the schema and without it. Then hostile schemas and
messages, while another client asks for /health all the time. Needs the packages llguidance and jsonschema.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import openai

from soft_reasoning import SoftReasoner
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.serve.app import base_url, bind, build_server
from soft_reasoning.serve.service import Service
from soft_reasoning.serve.settings import Settings

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """An object with all of ``properties`` and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


PLACE = closed({"city": TEXT, "country": TEXT})
ASKED: dict[str, tuple[str, Any]] = {
    "nested": (
        "Paris is the capital of France and has 2,100,000 inhabitants.",
        closed({"place": PLACE, "inhabitants": WHOLE}),
    ),
    "$ref": (
        "A trip from Rome in Italy to Vienna in Austria.",
        {**closed({"start": {"$ref": "#/$defs/p"}, "end": {"$ref": "#/$defs/p"}}), "$defs": {"p": PLACE}},
    ),
    "recursive": (
        "The numbers 4, 7 and 9 as a linked list.",
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": closed(
                    {"value": WHOLE, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}
                )
            },
        },
    ),
    "anyOf": (
        "How many legs has a spider?",
        {"anyOf": [closed({"legs": WHOLE}), closed({"error": TEXT})]},
    ),
    "enum": ("Which colour has grass?", closed({"colour": {"enum": ["red", "green", "blue"]}})),
    "pattern": (
        "Write the 4th of July 2024 as a date.",
        closed({"date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}}),
    ),
    "scalar": ("Is 7 a prime number?", {"enum": ["yes", "no"]}),
    "200 properties": (
        "Give every field the number 1.",
        closed({f"p{i}": {"type": "integer", "minimum": 0, "maximum": 9} for i in range(200)}),
    ),
    "Unicode": (
        "Translate 'thank you' into Japanese.",
        closed({"日本語": {"type": "string", "maxLength": 12}}),
    ),
    "additionalProperties": (
        "How old are Ann (31) and Bob (28)?",
        {"type": "object", "additionalProperties": WHOLE, "minProperties": 1, "maxProperties": 4},
    ),
}
CHAIN = {
    f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(26)
}
HOSTILE: dict[str, Any] = {
    "^(a+)+$": {"type": "string", "pattern": "^(a+)+$"},
    "2^26 paths of anyOf": {"$ref": "#/$defs/d0", "$defs": {**CHAIN, "d26": {"const": 1}}},
    "a{99999999999}": {"type": "string", "pattern": "a{99999999999}"},
    "a{1,100000}": {"type": "string", "pattern": "^(a{1,300}b{1,300}){1,300}$"},
    "30,000 properties": {"type": "object", "properties": {f"p{i}": TEXT for i in range(30_000)}},
    "nothing fits": {"allOf": [{"type": "string"}, {"type": "integer"}]},
}


LONG: dict[str, list[str]] = {"a question of 1 MB": ["Why? " * 200_000], "10,000 messages": ["Why?"] * 10_001}


def form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def chat(texts: list[str]) -> Any:
    return [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(texts)]


@contextmanager
def serving(reasoner: SoftReasoner, **settings: Any):
    """The URL of a server in this process."""
    chosen = Settings(port=0, **settings)
    listening = bind(chosen)
    server = build_server(Service(reasoner, chosen, "m"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield base_url(listening)
    finally:
        server.should_exit = True
        thread.join()


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.perf_counter()
    try:
        return call(), time.perf_counter() - begun
    except openai.APIStatusError as error:
        return error, time.perf_counter() - begun


def fits(text: str, schema: Any) -> str:
    try:
        jsonschema.validate(json.loads(text), schema)
    except json.JSONDecodeError:
        return "no JSON"
    except jsonschema.ValidationError:
        return "no"
    return "yes"


def ten(client: openai.OpenAI) -> Table:
    rows: list[list[str]] = []
    for name, (question, schema) in ASKED.items():
        row = [name]
        for wanted in (form(schema), openai.omit):
            ask = f"{question} Answer in JSON."
            messages: Any = [{"role": "user", "content": ask}]
            answer, seconds = timed(
                lambda messages=messages, wanted=wanted, name=name: client.chat.completions.create(
                    model="m",
                    messages=messages,
                    response_format=wanted,
                    max_tokens=1800 if name == "200 properties" else 200,
                )
            )
            text = answer.choices[0].message.content
            print(name, repr(text)[:300], flush=True)
            row += [fits(text, schema), str(answer.usage.completion_tokens), f"{seconds:.1f}"]
        rows.append(row)
    header = ["schema", "fits", "tokens", "s", "without it: fits", "tokens", "s"]
    return Table(header, rows)


def hostile(client: openai.OpenAI, url: str) -> Table:
    rows: list[list[str]] = []
    asked = {
        name: {"response_format": form(schema), "messages": chat(["Answer."])}
        for name, schema in HOSTILE.items()
    }
    asked |= {name: {"messages": chat(texts)} for name, texts in LONG.items()}
    for name, body in asked.items():
        waits, over = list[float](), threading.Event()

        def watch(waits: list[float] = waits, over: threading.Event = over) -> None:
            with httpx.Client() as http:
                while not over.is_set():
                    waits.append(timed(lambda: http.get(url.replace("/v1", "/health")))[1])
                    over.wait(0.02)

        thread = threading.Thread(target=watch)
        thread.start()
        answer, seconds = timed(
            lambda body=body: client.chat.completions.create(
                model="m", max_tokens=200, extra_body={"soft_reasoning": {"max_seconds": 5}}, **body
            )
        )
        over.set()
        thread.join()
        if isinstance(answer, openai.APIStatusError):
            said = f"{answer.status_code}: {answer.body['message']}"  # pyright: ignore
        else:
            said = f"200, {answer.usage.completion_tokens} tokens, {answer.choices[0].finish_reason}"
        print(name, said, flush=True)
        rows.append([name, said[:110], f"{seconds:.1f}", f"{1000 * max(waits):.0f}"])
    return Table(["schema", "response", "s", "longest /health, ms"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen25_coder_0_5b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with SoftReasoner.from_pretrained(options.model, method="cot", dtype=options.dtype) as reasoner:
        with serving(reasoner, max_body_bytes=2**24) as url:
            client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=None)
            tables = [ten(client), hostile(client, url)]
    text = "\n\n".join(table.markdown() for table in tables)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
