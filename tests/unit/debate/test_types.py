"""What a turn tells about itself."""

from __future__ import annotations

from support.making import FAILED, debate, v2


def test_a_turns_fields_are_its_sections_or_none() -> None:
    spoke, failed = debate(v2(), [["", FAILED, ""]]).turns[:2]
    assert spoke.fields == {"solution": "Some solution.", "evaluation": "Fine.", "comparison": "N/A"}
    assert failed.fields is None and failed.failed
