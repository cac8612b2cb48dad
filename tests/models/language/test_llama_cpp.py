"""Models behind llama.cpp's real server, with a random model: what it answers, and what its death costs."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.tiny_gguf import make_gguf

from pairsmith.core.errors import RemoteError
from pairsmith.core.progress import Silent
from pairsmith.models.language.loading import load_model
from pairsmith.models.language.remote import RemoteModel
from pairsmith.runs import Run
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings

pytest.importorskip("xllamacpp", reason="there is no llama.cpp server for this machine")
pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent.parent.parent / "llama_server.py"
TEXTS = ["the man is", "two dogs run", "it rains"]
CLOSE = 0.06
"""How far a log-probability of llama.cpp, which computes in several formats, may lie from transformers'."""
TASK = """\
name: short
kind: pair
labels:
  1: {instruction: 'The same as "<X1>": "'}
  0: {instruction: 'Else than "<X1>": "', counter_labels: [1]}
"""


class LlamaServer:
    """llama.cpp's server of a file, which can be killed and started again at the same address."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.name = f"http://127.0.0.1:{self.port}/v1#tiny"
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(PROGRAM), str(self._file), str(self.port)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return make_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", "F32")


@pytest.fixture(scope="module")
def server(file):
    server = LlamaServer(file)
    yield server
    server.kill()


@pytest.fixture
def there(server):
    model = RemoteModel(server.name, at_once=4)
    yield model
    model.close()


@pytest.fixture(scope="module")
def local(file):
    return load_model(str(file), device="cpu")


def likelihoods(model, tokens, *, ends=True):
    with torch.no_grad():
        logits = model._model(input_ids=torch.tensor([list(tokens)])).logits[0].float()
    if not ends:
        logits[:, sorted(model.end_tokens)] = -torch.inf
    return logits.log_softmax(1)


def test_its_form_and_its_context_are_found_out(there):
    assert (there.server.form, there.context) == ("llama.cpp's", 64)


@pytest.mark.parametrize("text", [*TEXTS, "a <|endoftext|> b", "Zoë  said 你好 '\n\ttwice."])
def test_its_tokens_are_the_models(there, local, text):
    assert there.encode(text) == local.encode(text)
    assert there.decode(there.encode(text)) == text


def test_its_likeliest_tokens_are_the_models_without_the_end(there, local):
    prompts = [tuple(local.encode(text)) for text in TEXTS]
    for prompt, listed in zip(prompts, there.server.likeliest(prompts, 20), strict=True):
        expected = likelihoods(local, prompt, ends=False)[-1]
        assert len(listed) == 20
        assert not listed.keys() & local.end_tokens
        assert list(listed.values()) == pytest.approx(expected[list(listed)].tolist(), abs=CLOSE)
        assert min(listed.values()) > float(expected.topk(21).values[-1]) - CLOSE


@pytest.mark.parametrize("text", ["a dog", "你 ë"])  # with tokens that are parts of a character
def test_it_scores_a_given_text(there, local, text):
    prompts = [tuple(local.encode(beginning)) for beginning in TEXTS]
    given = local.encode(text)
    for prompt, score in zip(prompts, there.server.log_probabilities(prompts, text), strict=True):
        of_tokens = likelihoods(local, [*prompt, *given])[len(prompt) - 1 : -1]
        expected = of_tokens[torch.arange(len(given)), given].sum()
        assert score == pytest.approx(float(expected), abs=CLOSE * len(given))


def test_it_draws_with_what_it_is_told_and_never_an_end(there):
    drawn = {there.continued(tuple(there.encode("it")), seed, 0, 1.0, 6, '"') for seed in range(30)}
    assert {ending for _, ending in drawn} <= {"stop", "length"}
    assert len(drawn) > 25, "nearly all are different, as no option of the server's own narrows them"
    assert there.continued((5, 6), 3, 5, 0.9, 6, '"') == there.continued((5, 6), 3, 5, 0.9, 6, '"')


@pytest.mark.parametrize("way", [{"decay": 0.0}, {"steering": "certified"}, {"steering": "reranked"}])
def test_killed_and_started_again_it_loses_nothing(file, way, tmp_path, monkeypatch):
    monkeypatch.setattr("pairsmith.models.language.remote.WAIT", 0.001)
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "task.yaml").write_text(TASK)
    server = LlamaServer(file)
    settings = GenerateSettings(
        model=server.name,
        task=str(tmp_path / "task.yaml"),
        inputs=[str(tmp_path / "in.txt")],
        shard_size=1,
        max_tokens=8,
        tries=3,
        **way,
    )
    try:
        whole = generate(settings, Run(tmp_path / "whole", Silent()))
        real, answered, kill_at = RemoteModel._response, [], [20, 8]

        def dying(self, *given):
            if kill_at and len(answered) >= kill_at[-1]:
                kill_at.pop()
                server.kill()
            answered.append(real(self, *given))
            return answered[-1]

        monkeypatch.setattr(RemoteModel, "_response", dying)
        kills = 0
        while True:
            try:
                again = generate(settings, Run(tmp_path / "cut", Silent()))
                break
            except RemoteError:
                kills += 1
                server.start()
        assert kills == 2
    finally:
        server.kill()
    assert rows(again) == rows(whole)
    assert again.manifest.counts == whole.manifest.counts


def rows(folder):
    return [folder.table().to_pylist(), folder.rejects().to_pylist()]
