"""Which member's state is right, and what is told of one that is not."""

import pytest

from edlz.services.master.core.groups.damage import damage_text, doubt_text
from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import Member, MemberStatus, Reduced, SnapshotName
from edlz.services.worker.core.groups.agreement import Agreement, differs_from, is_doubtful
from edlz.services.worker.core.groups.milestones import Milestones
from edlz.services.worker.core.groups.step import Chunks, Step


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


@pytest.mark.parametrize(
    ("checksums", "voters", "found"),
    [("aab", (), False), ("ab", (), True), ("aabb", (), True), ("abc", (), True), ("aab", (0, 2), True)],
)
def test_a_state_is_in_doubt_where_no_majority_has_it(
    checksums: str, voters: tuple[int, ...], found: bool
) -> None:
    assert is_doubtful(checksums, voters, is_certain=True) is found
    assert is_doubtful(checksums, voters, is_certain=False)


def test_who_has_just_taken_another_state_over_has_computed_nothing() -> None:
    assert not is_doubtful("aab", (0, 1), is_certain=False)


MEMBERS = tuple(Member(incarnation=(1, n), worker=str(n)) for n in (1, 2, 3))


def name(version: int) -> SnapshotName:
    return (1, 1), version


@pytest.mark.parametrize(
    ("version", "is_saved", "found"), [(4, False, False), (4, True, True), (5, False, True)]
)
def test_what_was_computed_or_saved_since_all_were_equal_is_in_doubt(
    version: int, is_saved: bool, found: bool
) -> None:
    agreement = Agreement()
    assert agreement.compare("aaa", name(3), MEMBERS, 0, (), is_saved=False)
    assert agreement.compare("", name(4), MEMBERS, 0, (), is_saved=False), "they did not compare theirs"
    assert not agreement.compare("aab", name(version), MEMBERS, 2, (), is_saved=is_saved)
    assert (agreement.agreed, agreement.is_doubtful) == (name(3), found)
    assert agreement.differs_from == (1, 1)
    agreement.on_other_state(name(2))
    assert (agreement.agreed, agreement.is_in_doubt) == ((name(3), True) if found else (name(2), False))
    agreement.accept()
    assert not agreement.is_in_doubt


def test_who_is_alone_agrees_with_itself() -> None:
    agreement = Agreement()
    assert agreement.compare("", name(3), MEMBERS[:1], 0, (), is_saved=False)
    assert agreement.agreed == name(3)


def test_what_is_written_behind_a_step_is_compared_in_that_generation() -> None:
    milestones = Milestones(1000.0, checkpoint_steps=3)
    chunks = Chunks(count=1, dense=0, state=0, bucket=1)
    step = Step(
        2, range(1), 1, chunks, means={(0, 0): Reduced(generation=(1, 1), version=2, bucket=0, headers=())}
    )
    assert milestones.on_step(step, 0.0) == (True, True)
    assert (milestones.compares(3), milestones.is_written(3)) == (True, True)
    milestones.begin_generation()
    assert (milestones.compares(3), milestones.is_written(3)) == (False, True)


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


def test_the_warning_of_a_doubt_names_where_all_go_back_to() -> None:
    members = {(1, n): Member(incarnation=(1, n), worker=str(n), endpoint=f"tcp://h{n}:1") for n in (1, 2)}
    about = {"term": 1, "phase": "staged", "generation": (1, 1), "members": (), "finished": ()}
    damaged = MemberStatus(**about, name=name(9), differs_from=(1, 1), is_doubtful=True)  # type: ignore[arg-type]
    text = doubt_text({(1, 2): damaged}, members, name(6))
    assert text.startswith(
        "worker-2 at h2 has another state of v9 than worker-1 at h1; v6 was the same on all"
    )
    other = MemberStatus(**about, name=name(9), is_doubtful=True)  # type: ignore[arg-type]
    assert doubt_text({(1, 1): other}, members, name(6)).startswith("A member had another state")
