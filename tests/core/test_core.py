"""Errors, settings, progress and bundled files: the floor everything stands on."""

import io
import subprocess
import sys

import pytest

from pairsmith.core import bundled, errors, progress


class TestErrors:
    def test_a_missing_extra_says_how_to_install_it(self):
        assert str(errors.MissingExtra("faiss-cpu", "faiss")) == (
            "this needs the package faiss-cpu, which is not installed; "
            "install it with: pip install 'pairsmith[faiss]'"
        )

    def test_choices_name_the_nearest_and_all(self):
        assert (
            errors.known_names_hint("movie", ["sts", "movies"]) == "did you mean 'movies'? known: movies, sts"
        )
        assert errors.known_names_hint("zzz", iter(["b", "a"])) == "known: a, b"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


class TestProgress:
    @pytest.mark.parametrize(
        ("seconds", "said"),
        [
            (0, "0 s"),
            (59.4, "59 s"),
            (59.6, "1 min 00 s"),
            (200, "3 min 20 s"),
            (3599.6, "1 h 00 min"),
            (7500, "2 h 05 min"),
        ],
    )
    def test_times_as_people_say_them(self, seconds, said):
        assert progress.clock(seconds) == said

    def test_a_line_has_count_share_rate_time_left_and_note(self):
        bar = progress.ProgressTask("writing", "pairs", 2000, started=0.0)
        bar.advance(500, note="98 % kept")
        bar.advance(0)
        assert bar.line(10.0) == "writing: 500/2,000 pairs · 25 % · 50.0/s · 30 s left · 98 % kept"
        bar.advance(1500, note="")
        assert bar.line(40.0) == "writing: 2,000/2,000 pairs · 100 % · 50.0/s"

    def test_the_first_seconds_say_nothing_of_the_time_left(self):
        bar = progress.ProgressTask("w", "p", 900, done=45, started=0.0)
        assert bar.line(9.9) == "w: 45/900 p · 5 % · 4.5/s"
        assert bar.line(10.0) == "w: 45/900 p · 5 % · 4.5/s · 3 min 10 s left"
        # Nor do the first twentieth of the units, or the first two.
        assert (
            progress.ProgressTask("w", "p", 900, done=44, started=0.0).line(10.0)
            == "w: 44/900 p · 5 % · 4.4/s"
        )
        assert (
            progress.ProgressTask("w", "p", 10, done=2, started=0.0).line(60.0)
            == "w: 2/10 p · 20 % · 2.0 a minute"
        )
        bar = progress.ProgressTask("w", "p", 10, started=0.0)
        bar.skip(5)  # which an earlier run did
        bar.advance(3)
        assert bar.line(60.0) == "w: 8/10 p · 80 % · 3.0 a minute · 40 s left"

    def test_no_line_shows_a_password(self, capsys):
        stream = io.StringIO()
        shown = progress.Progress(stream)
        shown.say("wrote s3://me:secret@bucket/out")
        shown.result("https://a/b?token=secret")
        assert "secret" not in stream.getvalue() + capsys.readouterr().out

    def test_nothing_to_do(self):
        assert progress.ProgressTask("a", "b", 0, started=5.0).line(5.0) == "a: 0/0 b"

    def test_what_an_earlier_run_did_has_no_rate(self):
        bar = progress.ProgressTask("w", "p", 10, started=0.0)
        bar.skip(5)
        assert bar.line(0.5) == "w: 5/10 p · 50 %"
        bar.advance(2)
        assert bar.line(1.0) == "w: 7/10 p · 70 % · 2.0/s"

    def test_without_a_terminal_a_line_every_ten_seconds(self, clock):
        stream = io.StringIO()
        shown = progress.Progress(stream)
        with shown.task("writing", 4, "pairs") as bar:
            bar.started = clock[0]
            for _ in range(4):
                clock[0] += 6
                bar.advance()
        assert stream.getvalue().splitlines() == [
            "writing: 1/4 pairs · 25 % · 10.0 a minute",
            "writing: 3/4 pairs · 75 % · 10.0 a minute · 6 s left",
            "writing: 4/4 pairs · 100 % · 10.0 a minute",
        ]

    def test_on_a_terminal_the_line_is_redrawn(self, clock):
        stream = Terminal()
        shown = progress.Progress(stream)
        bar = progress.ProgressTask("w", "p", 2, started=clock[0], draw=shown.draw)
        clock[0] += 1
        bar.advance()
        bar.advance(0)
        shown.say("done")
        assert stream.getvalue() == "\r\x1b[2Kw: 1/2 p · 50 % · 1.0/s\r\x1b[2Kdone\n"

    def test_the_last_state_is_written_when_the_work_fails(self, clock):
        stream = io.StringIO()
        with pytest.raises(KeyError), progress.Progress(stream).task("w", 2, "p"):
            raise KeyError
        assert stream.getvalue().startswith("w: 0/2 p")

    @pytest.mark.parametrize(
        ("kind", "out", "err"),
        [
            (progress.Progress, "0.81\n", "hello\nw: 1/2 p"),
            (progress.Quiet, "0.81\n", ""),
            (progress.Silent, "", ""),
        ],
    )
    def test_results_go_to_standard_output_and_the_rest_to_standard_error(self, capsys, kind, out, err):
        shown = kind()
        shown.say("hello")
        with shown.task("w", 2, "p") as bar:
            bar.advance()
        shown.result("0.81")
        said = capsys.readouterr()
        assert said.out == out
        assert said.err.startswith(err)
        assert bool(said.err) == bool(err)


class TestBundled:
    def test_the_model(self):
        assert bundled.model_path("pairsmith:tiny").parts[-2:] == ("models", "tiny")
        assert bundled.is_bundled(bundled.TINY)
        assert not bundled.is_bundled("gpt2-xl")

    def test_no_other_model(self):
        with pytest.raises(
            errors.ModelError, match="'pairsmith:tinny'; did you mean 'pairsmith:tiny'\\? known"
        ):
            bundled.model_path("pairsmith:tinny")

    @pytest.mark.parametrize("place", ["_PACKAGE", "_CHECKOUT"])
    def test_recipes_in_a_wheel_or_a_checkout(self, tmp_path, monkeypatch, place):
        package, checkout = tmp_path / "package", tmp_path / "checkout"
        monkeypatch.setattr(bundled, "_PACKAGE", package)
        monkeypatch.setattr(bundled, "_CHECKOUT", checkout)
        recipes = (package if place == "_PACKAGE" else checkout) / "recipes"
        recipes.mkdir(parents=True)
        (recipes / "quickstart.yaml").write_text("")
        assert bundled.recipe_path("quickstart") == recipes / "quickstart.yaml"
        with pytest.raises(
            errors.SettingsError, match="'quick'; did you mean 'quickstart'\\? known: quickstart"
        ):
            bundled.recipe_path("quick")


LIGHT = (
    ("numpy", "cli.steps"),
    ("pyarrow", "cli.steps"),
    ("torch", "cli.app steps.evaluate.settings steps.training.settings steps.evaluate.qa"),
    (
        "transformers",
        "steps.questions.ask steps.questions.relabel steps.mine.route steps.mine.filter steps.mine.rewrite "
        "steps.mine.search tools.report.route",
    ),
    (
        "sentence_transformers",
        "steps.generate.route methods.mining.reader methods.mining.summarizer methods.quip.student",
    ),
    ("mteb", "steps.evaluate.mteb"),
)
"""What these modules do without, as it takes seconds: once a command, and once for each of its workers."""


def test_modules_do_not_wait_for_libraries_that_they_can_do_without():
    code = ["import importlib, sys"]
    for library, names in LIGHT:
        for name in names.split():
            code.append(f"importlib.import_module('pairsmith.{name}')")
            code.append(f"print('{name} imports {library}') if '{library}' in sys.modules else None")
    ended = subprocess.run([sys.executable, "-c", "\n".join(code)], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("", "")
