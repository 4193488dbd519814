"""Which phase of a job may follow which."""

import pytest

from edlz.services.errors import LocalProtocolError
from edlz.services.master.core.vocabulary.phase import STEPS, Phase, check_step

ENDS = (Phase.COMPLETE, Phase.FAILED, Phase.STOPPED)


def test_every_phase_has_its_row() -> None:
    assert STEPS.keys() == set(Phase)


@pytest.mark.parametrize("end", ENDS)
def test_nothing_follows_an_end(end: Phase) -> None:
    check_step(end, end)
    for phase in set(Phase) - {end}:
        with pytest.raises(LocalProtocolError, match=f"was {end.value} cannot be {phase.value}"):
            check_step(end, phase)


def test_nobody_gathers_twice_or_exports_what_is_not_concluded() -> None:
    assert not any(Phase.GATHERING in after for after in STEPS.values())
    before_export = {phase for phase, after in STEPS.items() if Phase.EXPORTING in after}
    assert before_export == {Phase.CONCLUDING}


def test_any_phase_but_an_end_can_fail_or_be_stopped() -> None:
    for phase in set(Phase) - {*ENDS}:
        check_step(phase, Phase.FAILED)
        check_step(phase, Phase.STOPPING)
