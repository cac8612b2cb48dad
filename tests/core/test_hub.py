"""Whether the Hub answers is asked once; without an answer, libraries look into their caches only."""

import http.server
import threading

import datasets
import huggingface_hub
import pytest
from huggingface_hub import constants

from pairsmith.core import hub


@pytest.fixture(autouse=True)
def online(monkeypatch):
    monkeypatch.setattr(hub, "_answer", None)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()


def test_a_hub_that_answers_can_be_reached(monkeypatch):
    paths = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            paths.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert hub.why_unreachable() == ""
        assert hub.unreachable_hint() == ""
        with hub.hub_or_cache():
            assert not huggingface_hub.is_offline_mode()
        server.shutdown()
    assert len(paths) == 1  # the answer is remembered


def test_without_an_answer_the_caches_alone_are_looked_into(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    assert hub.why_unreachable()
    assert "cannot be reached" in hub.unreachable_hint()
    with hub.hub_or_cache():
        assert huggingface_hub.is_offline_mode()
        assert datasets.config.HF_HUB_OFFLINE
    assert not huggingface_hub.is_offline_mode()
    assert not datasets.config.HF_HUB_OFFLINE


def test_a_hub_that_is_turned_off_is_not_asked(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub.why_unreachable() == "HF_HUB_OFFLINE is set"
