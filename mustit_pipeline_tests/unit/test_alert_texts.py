"""Alerts are stored in English; their Korean is found by the form of the text."""

import re

import pytest

from mustit_pipeline.monitoring import alert_texts
from mustit_pipeline.monitoring.alert_texts import ALL, Wording

PLACE = re.compile(r"\{(\w+)\}")


@pytest.mark.parametrize("wording", ALL)
def test_every_text_is_found_again_with_its_values(wording: Wording) -> None:
    values = {name: f"{name}&1/50%" for name in PLACE.findall(wording.english)}
    assert set(PLACE.findall(wording.korean)) <= set(values)
    assert alert_texts.in_korean(wording.say(**values)) == wording.korean.format(**values)


def test_a_text_without_a_known_form_stays() -> None:
    assert (
        alert_texts.in_korean("product_details: the disk is full. Run 1.")
        == "product_details: the disk is full. Run 1."
    )


def test_every_wording_is_listed() -> None:
    assert {id(one) for one in vars(alert_texts).values() if isinstance(one, Wording)} == {id(one) for one in ALL}
