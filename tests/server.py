"""A completions server for tests: a model in this process, and faults on demand."""

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

SPOIL: dict[str, Callable[[dict[str, Any]], object]] = {
    "no choices": lambda choice: choice.clear(),
    "no index": lambda choice: choice.pop("index"),
    "null text": lambda choice: choice.update(text=None),
    "no finish": lambda choice: choice.pop("finish_reason"),
    "half a character": lambda choice: choice.update(text="a \ud800 b"),
    "no logprobs": lambda choice: choice.update(logprobs=None),
    "no echo": lambda choice: choice.update(logprobs={"text_offset": [0], "token_logprobs": [-1.0]}),
    "no offsets": lambda choice: choice["logprobs"].update(text_offset=[-1]),
    "short": lambda choice: choice["logprobs"]["token_logprobs"].pop(),
    "not finite": lambda choice: choice["logprobs"].update(
        token_logprobs=[math.nan for _ in choice["logprobs"]["token_logprobs"]]
    ),
    "no list": lambda choice: choice["logprobs"].update(top_logprobs=[]),
    "names": lambda choice: choice["logprobs"].update(top_logprobs=[{" a": -1.0}]),
}
"""Faults that leave something out of each choice of an answer."""


class Server(ThreadingHTTPServer):
    """Serves ``model``; ``faults`` are taken one a request, ``seen`` counts the requests by path.

    A fault is ``""`` for none, a status (``429:60`` asks to wait 60 s), one of ``SPOIL``, or one of those
    that ``do_POST`` names.
    """

    daemon_threads = False  # none may be at work when the process ends

    def __init__(self, model: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self.faults: deque[str] = deque()
        self.seen: list[str] = []
        self.most = 20
        self.refuses_longer = False
        self.hold = threading.Event()  # ends what "timeout" began
        self.held = threading.Event()  # set by the first "timeout"
        self.lock = threading.Lock()

    @property
    def name(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1#tiny"


@contextmanager
def serving(model: Any) -> Iterator[Server]:
    server = Server(model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, '{"data": [{"id": "tiny"}]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.seen.append(self.path)
            fault = self.server.faults.popleft() if self.server.faults else ""
        if fault == "timeout":
            self.server.held.set()
            self.server.hold.wait()
            fault = "cut"
        if fault == "cut":
            self.close_connection = True
            return
        if fault == "malformed":
            self._answer(200, '{"choices": [{"te')
        elif fault[:3].isdigit():
            self._answer(int(fault[:3]), '{"error": "injected"}', fault[4:])
        else:
            with self.server.lock, torch.inference_mode():
                code, answer = self._do(body)
            for choice in answer.get("choices", []) if fault else []:
                SPOIL[fault](choice)
            if "choices" in answer:
                answer["choices"] = list(filter(None, answer["choices"]))
            self._answer(code, json.dumps(answer))

    def _answer(self, code: int, text: str, after: str = "") -> None:
        data = text.encode()
        self.send_response(code)
        if code == 429:
            self.send_header("Retry-After", after or "0")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _do(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        model, server = self.server.model, self.server
        if self.path == "/tokenize":
            return 200, {"tokens": model.encode(body["prompt"]), "max_model_len": model.context}
        if self.path == "/detokenize":
            return 200, {"prompt": model.decode(body["tokens"])}
        if body.get("logprobs", 0) > server.most and server.refuses_longer:
            return 400, {"error": f"at most {server.most} logprobs"}
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        choices = [{"index": i, **self._choice(prompt, body)} for i, prompt in enumerate(prompts)]
        sent = sum(
            len(prompt) if isinstance(prompt, list) else len(model.encode(prompt)) for prompt in prompts
        )
        usage = {"prompt_tokens": sent, "completion_tokens": len(prompts)}
        return 200, {"choices": choices[::-1], "usage": usage}  # in no promised order

    def _choice(self, prompt: Any, body: dict[str, Any]) -> dict[str, Any]:
        model = self.server.model
        if body.get("echo"):
            return {"text": prompt, "logprobs": self._echo(prompt)}
        if "logprobs" in body:
            top = self._next(prompt).topk(min(body["logprobs"], self.server.most))
            names = [f"token_id:{token}" for token in top.indices.tolist()]
            listed = dict(zip(names, top.values.tolist(), strict=True))
            return {"text": model.decode([int(top.indices[0])]), "logprobs": {"top_logprobs": [listed]}}
        tokens = list(model.encode(prompt))
        drawn: list[int] = []
        generator = torch.Generator().manual_seed(body["seed"])
        for _ in range(body["max_tokens"]):
            p, which = self._next([*tokens, *drawn]).exp().topk(body["top_k"])
            drawn.append(int(which[torch.multinomial(p, 1, generator=generator)]))
            text, stop, _rest = model.decode(drawn).partition(body["stop"][0])
            if stop:
                return {"text": text, "finish_reason": "stop", "stop_reason": stop}
        return {"text": model.decode(drawn), "finish_reason": "length"}

    def _echo(self, prompt: str) -> dict[str, Any]:
        model = self.server.model
        tokens = model.encode(prompt)
        logits = model._model(input_ids=torch.tensor([tokens])).logits[0].float().log_softmax(1)
        scored = [None, *(float(logits[i, token]) for i, token in enumerate(tokens[1:]))]
        offsets = [len(model.decode(tokens[:i])) for i in range(len(tokens))]
        return {"text_offset": offsets, "token_logprobs": scored}

    def _next(self, tokens: list[int]) -> torch.Tensor:
        return self.server.model._model(input_ids=torch.tensor([tokens])).logits[0, -1].float().log_softmax(0)
