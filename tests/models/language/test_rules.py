"""Classifier-free guidance and contrastive decoding by hand, and rules by their names."""

from functools import partial

import pytest
import torch

from pairsmith.core.errors import SettingsError
from pairsmith.data.tasks import Decoding
from pairsmith.models.language.combine import (
    contrast,
    favours_main,
    guidance,
    named_rule,
    rule_of,
    self_debias,
)

MAIN = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
COUNTER = torch.tensor([[0.25, 0.5, 0.15, 0.1]])


def normal(values):
    return [value / sum(values) for value in values]


def test_guidance():
    expected = normal([c * (m / c) ** 2 for m, c in zip(MAIN[0].tolist(), COUNTER[0].tolist(), strict=True)])
    assert guidance(MAIN, COUNTER, scale=2.0)[0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("scale", "result"), [(0.0, COUNTER), (1.0, MAIN)])
def test_guidance_of_scale_0_and_1_gives_either_side(scale, result):
    assert torch.allclose(guidance(MAIN, COUNTER, scale), result, atol=1e-6)


def test_contrast():
    # 0.05 is below 0.2 times 0.5, so the last token is out.
    expected = [*normal([0.5**1.5 / 0.25**0.5, 0.3**1.5 / 0.5**0.5, 0.15**1.5 / 0.15**0.5]), 0.0]
    assert contrast(MAIN, COUNTER, strength=0.5, plausible=0.2)[0].tolist() == pytest.approx(
        expected, abs=1e-6
    )


def test_contrast_of_strength_0_is_the_main_prompts_plausible_part():
    assert contrast(MAIN, COUNTER, 0.0, 0.2)[0].tolist() == pytest.approx([*normal([0.5, 0.3, 0.15]), 0.0])


@pytest.mark.parametrize("rule", [guidance, contrast])
def test_what_a_counter_prompt_finds_impossible_is_no_fault(rule):
    result = rule(MAIN, torch.tensor([[0.0, 1.0, 0.0, 0.0]]))
    assert bool(result.isfinite().all())
    assert float(result.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: guidance(MAIN, COUNTER[:, :3]), r"must both be \(rows, vocab\)"),
        (lambda: guidance(MAIN, COUNTER, -1.0), "scale must be at least 0"),
        (lambda: contrast(MAIN, COUNTER, -1.0), "strength must be at least 0"),
        (lambda: contrast(MAIN, COUNTER, 0.5, 0.0), "plausible in"),
    ],
)
def test_values_out_of_range(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_rules_by_name():
    assert named_rule("pairsmith.models.language.combine.guidance") is guidance
    assert named_rule(None) is None
    assert named_rule(contrast) is contrast
    for name in ("pairsmith.models.language.combine.nothing", "no.such.module", "plain", ""):
        with pytest.raises(SettingsError, match=r"give package\.module\.function"):
            named_rule(name)


def test_a_rule_has_to_take_two_arguments():
    def named(p_main, p_counter, *, scale):
        return p_main * scale

    assert named_rule(partial(named, scale=2.0)) is not None
    with pytest.raises(SettingsError, match=r"the rule named cannot be called with two .*: missing .*scale"):
        named_rule(named)
    with pytest.raises(SettingsError, match=r"cannot be called with two .*: too many positional arguments"):
        named_rule("pairsmith.models.language.combine.rule_of")
    with pytest.raises(SettingsError, match="is no function; it is of the type float"):
        named_rule("pairsmith.models.language.combine.SMALLEST")


def test_which_rules_leave_it_to_the_main_prompts_likeliest_tokens():
    assert favours_main(partial(self_debias, decay=3.0))
    assert favours_main(contrast)
    assert not favours_main(guidance)
    assert not favours_main(lambda p_main, p_counter: p_main)


@pytest.mark.parametrize(
    ("decoding", "rule"),
    [
        (Decoding(decay=3.0, floor=0.1), partial(self_debias, decay=3.0, floor=0.1)),
        (Decoding(rule="guidance", scale=2.0), partial(guidance, scale=2.0)),
        (
            Decoding(rule="contrast", strength=1.0, plausible=0.2),
            partial(contrast, strength=1.0, plausible=0.2),
        ),
    ],
)
def test_decoding_settings_name_a_rule_and_its_strength(decoding, rule):
    assert rule_of(decoding)(MAIN, COUNTER).equal(rule(MAIN, COUNTER))
