"""Which phase of a job may follow which."""

import pytest

from edlz.services.errors import LocalProtocolError
from edlz.services.master.core.vocabulary.phase import STEPS, Phase

ENDS = (Phase.COMPLETE, Phase.FAILED, Phase.STOPPED)


@pytest.mark.parametrize("end", ENDS)
def test_nothing_follows_an_end(end: Phase) -> None:
    for phase in Phase:
        with pytest.raises(LocalProtocolError, match=f"a job that was {end.value} cannot be {phase.value}"):
            STEPS.check(end, phase)


def test_nobody_gathers_twice_or_exports_what_is_not_concluded() -> None:
    assert not any(Phase.GATHERING in after for after in STEPS.after.values())
    before_export = {phase for phase, after in STEPS.after.items() if Phase.EXPORTING in after}
    assert before_export == {Phase.CONCLUDING}


def test_any_phase_but_an_end_can_fail_or_be_stopped() -> None:
    for phase in set(Phase) - {*ENDS}:
        STEPS.check(phase, Phase.FAILED)
        if phase is not Phase.STOPPING:
            STEPS.check(phase, Phase.STOPPING)
