"""A server of OpenAI's kind on this machine, whose next replies can be faults."""

import hashlib
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread


class Faulty(ThreadingHTTPServer):
    """Chats and completions whose text follows from the prompt and the seed, after the ``faults`` in turn.

    A fault is a status, (status, headers), "hang", "torn", "html", or a function that changes the reply.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults, self.bodies, self.name, self.lock = [], [], "model-1", Lock()
        self.hung, self.released, self.salt = Event(), Event(), ""
        self.schema_status = 200  # of a request with a schema
        self.guides = False  # whether its texts fit a schema that has one value for each property
        self.in_flight = self.most_in_flight = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply({"data": [{"id": self.server.name, "object": "model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.bodies.append((self.path, body, self.headers))
            fault = server.faults.pop(0) if server.faults else None
            if "response_format" in body and server.schema_status != 200:
                fault = server.schema_status
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
        try:
            self.answer(body, fault)
        finally:
            with server.lock:
                server.in_flight -= 1

    def answer(self, body, fault):
        if fault == "hang":
            self.server.hung.set()
            self.server.released.wait()
            self.close_connection = True
            return
        if isinstance(fault, int | tuple):
            status, headers = fault if isinstance(fault, tuple) else (fault, {})
            self.reply({"error": {"message": f"no, {self.server.url}"}}, status, headers)
            return
        drawn = body.get("seed", 0) if body.get("temperature") else 0
        text = json.dumps([body.get("messages"), body.get("prompt"), drawn, self.server.salt])
        number = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 1000
        said = {"role": "assistant", "content": f"We count to {number}.\nAnswer: {number}"}
        if self.server.guides and "response_format" in body:
            properties = body["response_format"]["json_schema"]["schema"]["properties"]
            said["content"] = json.dumps({name: each["enum"][0] for name, each in properties.items()})
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        reply = {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 8}}
        if callable(fault):
            fault(reply)
        if fault == "html":
            self.reply("<html>", content="text/html")
            return
        self.reply(reply, torn=fault == "torn")

    def reply(self, value, status=200, headers=(), torn=False, content="application/json"):
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in dict(headers).items():
            self.send_header(name, text)
        self.send_header("Content-Type", content)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if torn else data)
        if torn:
            self.close_connection = True


@contextmanager
def faulty_server():
    with Faulty() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()
