"""``generate`` with a model behind a server: faults, a server that goes away, and what cannot be asked of one."""

from io import StringIO

import pytest

from pairsmith.core.bundled import TINY
from pairsmith.core.errors import RemoteError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.runs import Run
from pairsmith.steps.generate.route import ANSWERS_CACHE, generate
from pairsmith.steps.generate.settings import GenerateSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def settings_for(server, tmp_path):
    inputs = tmp_path / "first.txt"
    inputs.write_text("A man is playing.\nTwo dogs run.\n")

    def settings(**given):
        options = {
            "model": server.name,
            "inputs": [str(inputs)],
            "shard_size": 1,
            "max_tokens": 8,
            "tries": 2,
        }
        return GenerateSettings(**{**options, **given})

    return settings


def rows(folder):
    return sorted(map(str, folder.table().to_pylist()))


def test_rows_equal_those_of_the_model_itself(server, settings_for, tmp_path):
    stream = StringIO()
    remote = generate(settings_for(), Run(tmp_path / "remote", Progress(stream)))
    assert f"{server.name} takes requests in vLLM's form; steering: certified" in stream.getvalue()
    local = generate(settings_for(model=TINY), Run(tmp_path / "here", Silent()))
    assert rows(remote) == rows(local)
    assert remote.table().num_rows > 0


@pytest.mark.long
@pytest.mark.parametrize("steering", ["certified", "reranked"])
def test_a_server_that_goes_away_costs_nothing(server, settings_for, tmp_path, steering):
    settings = settings_for(steering=steering)
    whole = generate(settings, Run(tmp_path / "whole", Silent()))
    requests = len(server.seen)
    server.seen.clear()
    server.faults.extend([""] * (requests // 2) + ["500"] * 300)
    with pytest.raises(RemoteError, match="run the same command again to continue"):
        generate(settings, Run(tmp_path / "cut", Silent()))
    server.faults.clear()
    server.seen.clear()
    again = generate(settings, Run(tmp_path / "cut", Silent()))
    assert rows(again) == rows(whole)
    # What was answered is not asked again, but for what two threads asked at the same moment.
    assert len(server.seen) <= requests - requests // 2 + settings.concurrency
    assert (tmp_path / "cut" / ANSWERS_CACHE).is_file()


def test_answers_serve_other_settings_that_ask_the_same(server, settings_for, tmp_path):
    generate(settings_for(), Run(tmp_path / "out", Silent()))
    requests = len(server.seen)
    server.seen.clear()
    # One more try for each text: the earlier ones are answered already.
    generate(settings_for(tries=3), Run(tmp_path / "out", Silent(), fresh=True))
    assert len(server.seen) < requests / 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"preview": 1},
            "--preview needs the probabilities of all tokens.*; to see some rows first, give --limit 3",
        ),
        ({"top_k": 30}, "--top-k between 1 and --top-logprobs 20, not 30"),
        ({"top_k": 0}, "not 0"),
    ],
)
def test_what_a_server_cannot_do_is_refused(server, settings_for, tmp_path, given, text):
    with pytest.raises(SettingsError, match=text):
        generate(settings_for(**given), Run(tmp_path / "out", Silent()))
    assert not server.seen


def test_invalid_answers_neither_become_rows_nor_stop_the_same_command(server, settings_for, tmp_path):
    settings = settings_for(steering="reranked")
    whole = generate(settings, Run(tmp_path / "whole", Silent()))
    server.faults.extend(["null text"] * 300)
    with pytest.raises(
        RemoteError, match=r"\(no text: .*\); finished work is saved: run the same command again"
    ):
        generate(settings, Run(tmp_path / "out", Silent()))
    server.faults.clear()
    server.faults.extend(["", "null text", "no index"])
    again = generate(settings, Run(tmp_path / "out", Silent()))
    assert rows(again) == rows(whole)
    assert again.manifest.counts == whole.manifest.counts
