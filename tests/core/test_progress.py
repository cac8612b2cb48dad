"""Messages that are passed on in other words."""

import io

from pairsmith.core.progress import InOtherWords, Progress


def test_only_options_in_messages_get_other_words(capsys):
    stream = io.StringIO()
    progress = InOtherWords(Progress(stream), {"top_p": "pairs.top_p"})
    progress.say(progress.coloured("give --top-p", 3))
    progress.link("http://localhost/?page=--top-p")
    progress.result("--top-p")
    with progress.task("--top-p", 2, "rows") as bar:
        bar.advance(2)
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["give pairs.top_p", "http://localhost/?page=--top-p"]
    assert lines[-1].startswith("--top-p: 2/2 rows")
    assert capsys.readouterr().out == "--top-p\n"
