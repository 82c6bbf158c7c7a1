"""Every number of the panel and every alarm is explained, in words that are not empty."""

from moot.rl.explain import ALARMS, PANEL
from moot.rl.trust import Alarms, panel


def test_the_panel_and_the_alarms_are_explained_one_for_one() -> None:
    shown = set(panel([]))
    assert shown <= set(PANEL)
    assert set(PANEL) - shown <= {"trust/outside_agreement", "trust/outside_accuracy"}  # only where an outside judge was asked
    assert set(Alarms().update([])) == set(ALARMS)
    for meaning in [*PANEL.values(), *ALARMS.values()]:
        assert len(meaning.means.split()) > 5 and len(meaning.remedy.split()) > 2
