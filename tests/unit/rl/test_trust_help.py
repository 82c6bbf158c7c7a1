"""Every number of the panel and every alarm is explained, in words that are not empty."""

from moot.rl.alarms import ALARMS, Alarms
from moot.rl.trust import panel
from moot.rl.trust_help import PANEL


def test_the_panel_and_the_alarms_are_explained_one_for_one() -> None:
    shown = set(panel([]))
    assert shown <= set(PANEL)
    of_judges = {
        "trust/outside_agreement",
        "trust/outside_accuracy",
        "trust/judge_held_out",
        "trust/judge_pair_accuracy",
        "trust/judge_j",
    }  # only where an outside judge was asked
    of_the_run = {
        "trust/plurality_flips",
        "env/all/ac_tokens_per_turn",
    }  # not of one batch of debates alone, or counted with the tokens
    assert set(PANEL) - shown == of_judges | of_the_run
    assert set(Alarms().update([])) == set(ALARMS)
    for meaning in [*PANEL.values(), *ALARMS.values()]:
        assert len(meaning.means.split()) > 5 and len(meaning.remedy.split()) > 2
