"""Sharing the slots of a machine: what is decided, and the file in which the jobs meet."""

import dataclasses
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.client.local.share.fair_share import Entry, room_of, slots_of, waiting_text


def entry(job: str, **fields: object) -> Entry:
    whole = {"pid": 1, "start": 1, "slots": 2, "since_s": float(ord(job[0])), **fields}
    return Entry(job=job, **whole)  # type: ignore[arg-type]


def settled(*entries: Entry) -> dict[str, int]:
    """Return the workers of each job once everybody has looked and its workers have come and gone."""
    jobs = list(entries)
    for _ in range(3 * len(jobs)):
        for place, own in enumerate(jobs):
            room = room_of(own, jobs[:place] + jobs[place + 1 :])
            jobs[place] = msgspec.structs.replace(own, room=room, held=min(room, own.wanted))
    return {job.job: job.held for job in jobs}


def test_one_job_gets_what_it_wants_and_no_more_than_there_is() -> None:
    assert settled(entry("a", wanted=1)) == {"a": 1}
    assert settled(entry("a", wanted=5)) == {"a": 2}


def test_the_higher_goes_first_then_the_older() -> None:
    old, new = entry("a", wanted=2, held=2, room=2), entry("b", wanted=1)
    assert settled(old, new) == {"a": 2, "b": 0}
    assert settled(old, msgspec.structs.replace(new, ranks=(5,))) == {"a": 1, "b": 1}
    assert settled(old, msgspec.structs.replace(new, wanted=9, ranks=(5,))) == {"a": 0, "b": 2}


def test_everybodys_minimum_comes_before_anybodys_further_workers() -> None:
    high, low = entry("a", slots=3, wanted=3, ranks=(5,)), entry("b", slots=3, wanted=3, minimum=1)
    assert settled(high, low) == {"a": 2, "b": 1}
    assert settled(high, msgspec.structs.replace(low, wanted=0)) == {"a": 3, "b": 0}
    both = [msgspec.structs.replace(job, minimum=2) for job in (high, low)]
    assert settled(*both) == {"a": 2, "b": 1}


def test_a_job_whose_workers_differ_in_rank_yields_only_the_lower_ones() -> None:
    mixed, middle = entry("a", slots=4, wanted=4, ranks=(5, 5, -5)), entry("b", slots=4, wanted=4)
    assert settled(mixed, middle) == {"a": 2, "b": 2}
    assert settled(mixed, msgspec.structs.replace(middle, ranks=(9,))) == {"a": 0, "b": 4}
    assert settled(mixed, msgspec.structs.replace(middle, ranks=(-9,))) == {"a": 4, "b": 0}


def test_the_smallest_number_of_slots_holds() -> None:
    few, many = entry("a", slots=2, wanted=2), entry("b", slots=8, wanted=8)
    assert slots_of([few, many]) == 2
    assert settled(few, many) == {"a": 2, "b": 0}
    assert settled(many) == {"b": 8}


def test_a_slot_is_not_given_before_it_is_let_go() -> None:
    low, high = entry("a", wanted=2, held=2, room=2), entry("b", wanted=1, ranks=(5,))
    assert room_of(high, [low]) == 0
    told = msgspec.structs.replace(low, room=room_of(low, [high]))
    assert told.room == 1
    assert room_of(high, [told]) == 0  # its worker still runs
    assert room_of(high, [msgspec.structs.replace(told, held=1)]) == 1


def test_room_that_was_told_counts_before_a_worker_runs() -> None:
    starting = entry("a", wanted=2, room=2)
    assert room_of(entry("b", wanted=1), [starting]) == 0


def test_a_free_slot_is_left_to_the_one_to_whom_it_is_due() -> None:
    low = entry("a", slots=3, wanted=3, room=1, held=2)
    high, middle = entry("b", slots=3, wanted=2, ranks=(5,)), entry("c", slots=3, wanted=1, ranks=(3,))
    assert room_of(middle, [low, high]) == 0
    assert room_of(high, [low, middle]) == 1


def test_what_a_waiting_job_says() -> None:
    own = entry("b", wanted=1)
    assert waiting_text(own, [entry("a", held=2, room=2, label="high")]) == (
        'waiting for a slot: 2 of 2 are taken by "a" (priority high)'
    )
    three = [entry("a", held=1), entry("c", slots=3, room=1, label="low"), entry("d", slots=3)]
    assert waiting_text(own, three) == 'waiting for a slot: 2 of 2 are taken by "a", "c" (priority low)'
    assert waiting_text(entry("b", wanted=1, slots=1), [entry("a", held=1)]) == (
        'waiting for a slot: 1 of 1 is taken by "a"'
    )
    assert waiting_text(entry("b"), [entry("a", held=2)]) == ""
    assert waiting_text(entry("b", wanted=2, room=1), [entry("a", held=1)]) == ""
    assert waiting_text(own, [entry("a")]) == ""


@dataclasses.dataclass
class Machine:
    """Jobs that look at any time, and whose workers come and go when they like."""

    slots: int
    jobs: list[Entry] = dataclasses.field(default_factory=list)
    joined: int = 0

    def join(self, random_: random.Random) -> None:
        ranks = sorted(random_.choices([-5, 0, 5], k=random_.randint(1, 3)), reverse=True)
        self.joined += 1
        job = entry(
            f"job-{self.joined}",
            pid=self.joined,
            slots=self.slots,
            ranks=tuple(ranks),
            since_s=random_.choice([1.0, 2.0]),
            minimum=random_.randint(0, 2),
            wanted=random_.randint(0, 5),
        )
        self.jobs.append(job)

    def look(self, job: Entry) -> Entry:
        others = [other for other in self.jobs if other is not job]
        return self._set(job, room=room_of(job, others))

    def run_worker(self, job: Entry) -> None:
        if job.held < min(job.room, job.wanted):
            self._set(job, held=job.held + 1)

    def end_worker(self, job: Entry) -> None:
        if job.held:
            self._set(job, held=job.held - 1)

    def want(self, job: Entry, wanted: int) -> None:
        self._set(job, wanted=wanted)

    def settle(self) -> None:
        for _ in range(4):
            for place in range(len(self.jobs)):
                while (job := self.jobs[place]).held > min(job.room, job.wanted):
                    self.end_worker(job)
                self.look(self.jobs[place])
                while (job := self.jobs[place]).held < min(job.room, job.wanted):
                    self.run_worker(job)

    def check(self) -> None:
        assert sum(job.held for job in self.jobs) <= self.slots
        assert sum(job.claim for job in self.jobs) <= self.slots

    def _set(self, job: Entry, **fields: object) -> Entry:
        place = next(place for place, other in enumerate(self.jobs) if other is job)
        self.jobs[place] = msgspec.structs.replace(job, **fields)
        return self.jobs[place]


@settings(max_examples=300)
@given(
    st.integers(1, 6),
    st.integers(0, 2**32),
    st.lists(st.sampled_from(["join", "look", "look", "run", "run", "end", "want", "die"]), max_size=80),
)
def test_slots_are_never_given_twice_and_never_left_idle(slots: int, seed: int, events: list[str]) -> None:
    random_ = random.Random(seed)
    machine = Machine(slots)
    machine.join(random_)
    for event in events:
        job = random_.choice(machine.jobs)
        if event == "join" and len(machine.jobs) < 5:
            machine.join(random_)
        elif event == "look":
            machine.look(job)
        elif event == "run":
            machine.run_worker(job)
        elif event == "end":
            machine.end_worker(job)
        elif event == "want":
            machine.want(job, random_.randint(0, 5))
        elif event == "die" and len(machine.jobs) > 1:
            machine.jobs.remove(job)
        machine.check()
    machine.settle()
    machine.check()
    _check_settled(machine)


def _check_settled(machine: Machine) -> None:
    jobs = machine.jobs
    held = {job.key: job.held for job in jobs}
    wanted = sum(job.wanted for job in jobs)
    assert sum(held.values()) == min(machine.slots, wanted), "a slot is idle"
    before = list(jobs)
    for place in range(len(jobs)):
        machine.look(machine.jobs[place])
    assert machine.jobs == before, "it does not come to rest"
    for job in jobs:  # whoever lacks a worker lacks it to workers that go before it
        if job.held < job.wanted:
            lacking = importance(job, job.held)
            running = [importance(other, number) for other in jobs for number in range(other.held)]
            assert all(key < lacking for key in running), "a lower job has a higher one's slot"


def importance(job: Entry, number: int) -> tuple[object, ...]:
    rank = job.ranks[number] if number < len(job.ranks) else job.ranks[-1]
    return (0 if number < job.minimum else 1, -rank, job.since_s, job.pid, number)


@pytest.mark.parametrize("wanted", [0, 1, 3])
def test_a_job_alone_with_room_for_all_is_told_so_at_once(wanted: int) -> None:
    assert room_of(entry("a", slots=3, wanted=wanted), []) == wanted


def test_what_was_told_stays_until_somebody_else_is_to_have_it() -> None:
    told = entry("a", wanted=2, room=2)
    assert room_of(told, []) == 2
    assert room_of(told, [entry("b", wanted=2)]) == 2
    assert room_of(told, [entry("b", wanted=1, ranks=(5,))]) == 1
