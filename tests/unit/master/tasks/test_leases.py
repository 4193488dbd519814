"""Leases against a plain dict."""

from hypothesis import given
from hypothesis import strategies as st

from edlz.services.master.core.tasks.leases import Leases
from edlz.services.protocol.ledger import TaskSet

TASKS, HOLDERS = 8, 3

events = st.lists(
    st.tuples(
        st.sampled_from(("give", "give", "end", "close", "renew", "reopen")),
        st.integers(0, TASKS - 1),
        st.integers(1, HOLDERS),
    ),
    max_size=40,
)


@given(events)
def test_leases_are_a_dict_of_holders_and_ages(happened: list[tuple[str, int, int]]) -> None:
    leases, held, closed = Leases(), {}, TaskSet()
    for now, (kind, task, number) in enumerate(happened):
        holder = (1, number)
        if kind == "give" and task not in closed:
            leases.give(task, holder, now)
            held[task] = (holder, now)
        elif kind == "end":
            ended = leases.end(task)
            assert (ended.incarnation if ended else None) == held.pop(task, (None,))[0]
        elif kind == "close":
            leases.close(task)
            closed.add(task)
            held.pop(task, None)
        elif kind == "renew":
            leases.renew(holder, now)
            held |= {t: (holder, now) for t, (other, _) in held.items() if other == holder}
        elif kind == "reopen":
            closed.discard(task)
            leases.reopen(closed)
        leases.check_invariants(closed)
        compare(leases, held, closed, now)


def compare(
    leases: Leases, held: dict[int, tuple[tuple[int, int], int]], closed: TaskSet, now: float
) -> None:
    assert sorted(leases) == sorted(held)
    free = [task for task in range(TASKS) if task not in held and task not in closed]
    assert [task for task in range(TASKS) if leases.is_free(task)] == free
    assert TASKS - leases.taken_count == len(free)
    assert leases.first_free(range(TASKS)) == min(free, default=None)
    assert leases.first_free(range(2, 5), free[:1]) == min(
        (t for t in free[1:] if t in range(2, 5)), default=None
    )
    for number in range(HOLDERS + 1):
        mine = sorted(task for task, (holder, _) in held.items() if holder == (1, number))
        assert leases.held_by((1, number)) == mine
    late = sorted(task for task, (_, since) in held.items() if now - since > 3)
    assert sorted(leases.overdue(now, 3)) == late
    assert leases.first(range(1, TASKS), late) == min({*free, *late} - {0}, default=None)
