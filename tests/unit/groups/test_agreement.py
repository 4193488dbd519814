"""Which member's state is right, and what is told of one that is not."""

import pytest

from edlz.services.master.core.groups.damage import damage_text
from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import Member, MemberStatus
from edlz.services.worker.core.groups.agreement import differs_from
from edlz.services.worker.core.groups.milestones import Milestones


@pytest.mark.parametrize(
    ("checksums", "found"),
    [
        ("aaaa", [None, None, None, None]),
        ("aaba", [None, None, 0, None]),
        ("baaa", [1, None, None, None]),
        ("ab", [None, 0]),
        ("ba", [None, 0]),
        ("abc", [None, 0, 0]),
        ("bbaa", [None, None, 0, 0]),
    ],
)
def test_right_is_what_most_have_and_of_equals_the_first(checksums: str, found: list[int | None]) -> None:
    assert [differs_from(tuple(checksums), rank) for rank in range(len(checksums))] == found


def test_who_has_taken_the_state_over_does_not_say_which_one_is_right() -> None:
    assert [differs_from("abbaa", rank, voters=(2, 1, 0)) for rank in range(5)] == [1, None, None, 1, 1]
    assert [differs_from("ab", rank, voters=(1,)) for rank in range(2)] == [1, None]


def test_states_are_compared_every_so_many_steps() -> None:
    assert [version for version in range(350) if Milestones(1000.0).compares(version)] == [0, 100, 200, 300]


@pytest.mark.parametrize(
    ("endpoints", "text"),
    [
        (
            ("tcp://10.0.0.1:7", "tcp://h2:8"),
            "worker-3 at h2 has another state of v0 than worker-2 at 10.0.0.1",
        ),
        (("ipc:///a", "ipc:///b"), "worker-3 has another state of v0 than worker-2"),
        (("", "ipc:///b"), "worker-3 has another state of v0 than another worker"),
    ],
)
def test_the_warning_names_both_machines(endpoints: tuple[str, str], text: str) -> None:
    members = {
        (1, n): Member(incarnation=(1, n), worker=str(n + 1), endpoint=endpoint)
        for n, endpoint in enumerate(endpoints, 1)
        if endpoint
    }
    status = MemberStatus(
        term=1, phase="staged", generation=(1, 1), members=(), name=BASE, finished=(), differs_from=(1, 1)
    )
    assert damage_text((1, 2), status, members).startswith(f"{text}, and takes that one over.")
    told = damage_text((1, 2), status, members, has_taken_over=True)
    assert told.startswith("worker-3")
    assert "has taken over another state of v0" in told
    assert "replaced" not in told, "its machine is not to blame"
