"""The chaos harness itself: its schedules, its lines, its recount and its report."""

import asyncio
import contextlib
import dataclasses
import math
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chaos import Chaos
from benchmarks.chaos_checks import Outcome, examine, problems_of_group
from benchmarks.chaos_data import EVALUATED, VERSIONS
from benchmarks.chaos_disk import SmallDisk, can_mount
from benchmarks.chaos_group_schedule import draw_group
from benchmarks.chaos_job import ChaosJob, Missed
from benchmarks.chaos_network import Network
from benchmarks.chaos_report import Run, line_of, summary_of
from benchmarks.chaos_schedule import ALL, Fault, Mode, Schedule, draw
from edlz.services import strict_json
from edlz.services.master.journal.journal import Journal
from edlz.services.protocol.job_status import EvaluationView, JobStatus, PartitionView
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.storage.snapshots import SnapshotFolder
from tests import builders
from tests.states import make_state

# ---------------------------------------------------------------- schedules

ROLES = ("master", "ps", "worker")


@given(st.integers(0, 10**6), st.sampled_from(("sync", "async")), st.integers(1, 3), st.integers(0, 2))
def test_a_schedule_can_be_carried_out(seed: int, mode: Mode, least: int, more: int) -> None:
    versions = VERSIONS[mode]
    schedule = draw(seed, mode, versions, range(least, least + more + 1))
    assert schedule == draw(seed, mode, versions, range(least, least + more + 1))
    assert least <= len(schedule.faults) <= least + more
    at = [fault.at_version for fault in schedule.faults if not fault.is_late]
    assert at == sorted(at)
    assert len(set(at)) >= len(at) - 1  # two at once, at most
    assert all(0.1 * versions - 1 <= version < 0.7 * versions for version in at)
    assert [fault.is_late for fault in schedule.faults[:-1]] == [False] * (len(schedule.faults) - 1)
    names = {"master", *(f"ps-{n}" for n in range(schedule.partitions))}
    names |= {f"worker-{n}" for n in range(schedule.workers)}
    for fault in schedule.faults:
        assert (fault.target == "disk") == (fault.kind == "full")
        assert fault.target in names | {"disk"}
        assert (fault.delay_s > 0) == (fault.kind == "delay")
        if fault.kind == "kill" and fault.target.startswith("worker"):
            names.remove(fault.target)  # whoever comes in its place has another name
    assert sum(fault.kind == "full" for fault in schedule.faults) <= 1


def test_seeds_meet_everybody_with_everything() -> None:
    faults = [fault for seed in range(200) for fault in draw(seed, "sync", VERSIONS["sync"]).faults]
    met = {(fault.kind, fault.target.partition("-")[0]) for fault in faults}
    assert met == {
        *((kind, role) for kind in ("kill", "stall", "cut", "delay", "mute") for role in ROLES),
        *(("end", "ps"), ("digest", "ps"), ("complete", "master"), ("full", "disk")),
    }
    assert draw(1, "sync", 500) != draw(2, "sync", 500)
    assert draw(1, "sync", 500) != draw(1, "async", 500)


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_a_schedule_of_a_group_can_be_carried_out(seed: int, most: int) -> None:
    versions = VERSIONS["allreduce"]
    schedule = draw_group(seed, versions, range(1, most + 1))
    assert schedule == draw_group(seed, versions, range(1, most + 1))
    assert (schedule.mode, schedule.partitions) == ("allreduce", 0)
    assert 1 <= len(schedule.faults) <= most
    at = [fault.at_version for fault in schedule.faults]
    assert at == sorted(at)
    alive = {f"worker-{n}" for n in range(schedule.workers)}
    for fault in schedule.faults:
        if fault.kind in ("digest", "complete"):
            assert fault is schedule.faults[-1]
        elif fault.target not in ("master", "disk", ALL):
            assert {fault.target, fault.other} <= {*alive, ""}
            assert fault.target != fault.other
        if fault.target == ALL:
            alive.clear()
        elif fault.kind in ("kill", "again", "end"):
            alive.discard(fault.target)
    assert sum(fault.kind == "full" for fault in schedule.faults) <= 1


def test_seeds_meet_every_kind_of_group_fault() -> None:
    faults = [fault for seed in range(200) for fault in draw_group(seed, VERSIONS["allreduce"]).faults]
    assert {(fault.kind, fault.target.partition("-")[0]) for fault in faults} == {
        *(
            (kind, role)
            for kind in ("kill", "stall", "cut", "delay", "mute")
            for role in ("master", "worker")
        ),
        *((kind, "worker") for kind in ("again", "link", "end")),
        *(("kill", ALL), ("digest", ALL), ("complete", "master"), ("full", "disk")),
    }


def test_some_come_two_at_once() -> None:
    drawn = [[fault.at_version for fault in draw(seed, "sync", 500).faults] for seed in range(100)]
    assert sum(len(set(at)) < len(at) for at in drawn) > 5


# ---------------------------------------------------------------- the report

SCHEDULE = Schedule(
    7, "sync", 2, 1, (Fault("kill", "ps-0", 35, 0.5), Fault("delay", "worker-1", 80, 2.0, delay_s=0.1))
)


def test_a_good_run_is_one_line() -> None:
    text = line_of(Run(SCHEDULE, 21.34, minibatches=856))
    assert text == (
        "ok      856 minibatches once, same bits  21.3s  seed 7 sync 2w 1ps  "
        "kill ps-0 0.5s at v35; delay worker-1 100ms 2.0s at v80"
    )


def test_a_failed_run_says_how_to_repeat_it_and_where_it_lies() -> None:
    text = line_of(Run(SCHEDULE, 9.0, problems=("one", "two"), folder="/f/run-7", command="again --seed=7"))
    assert text.splitlines() == [
        "FAILED  9.0s  seed 7 sync 2w 1ps  kill ps-0 0.5s at v35; delay worker-1 100ms 2.0s at v80",
        "        one",
        "        two",
        "        kept    /f/run-7",
        "        repeat  again --seed=7",
    ]


def test_the_summary_counts_faults_by_kind_and_role() -> None:
    runs = [Run(SCHEDULE, 1.0), Run(SCHEDULE, 1.0, problems=("one",))]
    assert summary_of(runs) == "2 runs, 1 failed (seeds 7); 4 faults: 2 delay worker, 2 kill ps"
    assert summary_of(runs[:1]) == "1 runs, 0 failed; 2 faults: 1 delay worker, 1 kill ps"


def test_what_was_left_out_is_said_and_not_counted() -> None:
    run = Run(SCHEDULE, 1.0, minibatches=856, left_out=(Fault("full", "disk", 50, 5.0),))
    assert line_of(run).endswith("delay worker-1 100ms 2.0s at v80  left out: full disk 5.0s at v50")
    assert summary_of([run, Run(SCHEDULE, 1.0)]) == (
        "2 runs, 0 failed; 4 faults: 2 delay worker, 2 kill ps; "
        "1 disk full left out (only root can mount a small disk)"
    )


# ---------------------------------------------------------------- the recount

PLAN = builders.plan(18, records_per_task=4, minibatch_size=2)
WANTED = {
    "records": float(EVALUATED),
    "numbers": float(sum(range(EVALUATED))),
    "nan": math.nan,
    "inf": math.inf,
}
VIEW = PartitionView(id="0", state="sealed", version=9, expected=9, applied=9)
STATUS = JobStatus(
    name="j",
    state="Succeeded",
    mode="sync",
    slots=1,
    started_at=0.0,
    now=1.0,
    version=9,
    digest="d",
    evaluations=(EvaluationView(version=9, metrics=WANTED),),
    partitions=(VIEW,),
)


def leave(folder: Path, counts: Sequence[int] = (), status: JobStatus = STATUS) -> Path:
    """What a job leaves that applied each task's minibatches so many times; by default as the plan says."""
    job = builders.job(PLAN)
    with Journal(folder / "journal.sqlite") as journal:
        journal.begin(job)
    (folder / "status.json").write_bytes(strict_json.encode(status))
    snapshots = SnapshotFolder(0, folder)
    snapshots.open(job)
    applied = np.array(counts, np.int32) if counts else PLAN.minibatches
    ledger = LedgerRecord(finished=(0, 5), minibatches=9)
    snapshots.write(msgspec.structs.replace(make_state(version=9), counts=applied, ledger=ledger), (1, 1))
    return folder


def test_a_job_that_kept_its_promises(tmp_path: Path) -> None:
    outcome = examine(leave(tmp_path), evaluated=EVALUATED)
    assert (outcome.problems, outcome.minibatches, outcome.digest) == ((), 9, "d")


def test_a_full_ledger_does_not_hide_what_was_applied_twice_or_never(tmp_path: Path) -> None:
    counts = PLAN.minibatches + np.array([0, 1, 0, -1, 0], np.int32)
    problems = examine(leave(tmp_path, counts.tolist()), evaluated=EVALUATED).problems
    assert len(problems) == 2
    assert problems[0].endswith("minibatches of task 1")
    assert problems[1].endswith("minibatches of task 3")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"state": "Failed"}, "the job is Failed"),
        ({"partitions": ()}, "0 of 1 partitions"),
        ({"partitions": (msgspec.structs.replace(VIEW, doubled=1),)}, "doubled=1"),
        ({"version": 10}, "no evaluation of the final v10"),
        (
            {"evaluations": (EvaluationView(version=9, metrics={**WANTED, "records": 131.0}),)},
            "evaluation at v9",
        ),
        ({"evaluations": (EvaluationView(version=9, metrics={**WANTED, "nan": 0.0}),)}, "evaluation at v9"),
        ({"evaluations": ()}, "no evaluation of the final v9"),
    ],
)
def test_a_status_with_a_broken_promise(tmp_path: Path, changes: dict[str, object], problem: str) -> None:
    status = msgspec.structs.replace(STATUS, **changes)
    problems = examine(leave(tmp_path, status=status), evaluated=EVALUATED).problems
    assert len(problems) == 1
    assert problem in problems[0]


@pytest.mark.parametrize(
    ("faults", "is_wrong"),
    [
        ((Fault("kill", "worker-1", 35, 0.5),), True),
        ((Fault("kill", "worker-1", 35, 0.5), Fault("kill", "worker-0", 35, 0.5)), False),
        ((Fault("link", "worker-1", 35, 0.5, other="worker-0"),), False),
        ((Fault("kill", ALL, 35, 0.5),), False),
        ((Fault("full", "disk", 35, 0.5),), False),
    ],
)
def test_a_group_goes_back_only_if_all_were_met(
    faults: tuple[Fault, ...], is_wrong: bool, tmp_path: Path
) -> None:
    log = tmp_path / "master.log"
    back = "the model is on worker-0, worker-2.\ntraining goes back to v30: v40 cannot be gone on from.\n"
    schedule = Schedule(1, "allreduce", 2, 0, faults)
    log.write_text(f"the model is on worker-0, worker-1.\n{back}")
    assert bool(problems_of_group(log, schedule)) == is_wrong
    log.write_text(f"the model is on worker-1.\n{back}")  # the other one was not yet a member
    assert not problems_of_group(log, schedule)
    log.write_text("worker-1 has another state of v100 than worker-0")
    assert len(problems_of_group(log, schedule)) == 1
    log.write_text("")
    assert not problems_of_group(log, schedule)


class Played(Chaos):
    """Runs no processes: each job leaves what `play` says."""

    def __init__(self, folder: Path, play: Callable[[bool], Outcome]) -> None:
        super().__init__(folder)
        self._play = play

    def _job(self, place: Path, flags: tuple[str, ...], schedule: Schedule) -> Outcome:
        place.mkdir()
        return self._play(bool(schedule.faults))


def test_other_bits_than_undisturbed_fail_a_synchronous_run(tmp_path: Path) -> None:
    played = Played(tmp_path, lambda is_disturbed: Outcome("b" if is_disturbed else "a", 856, ()))
    run = played.run(SCHEDULE, "again")
    assert run.problems == ("digest b, undisturbed a",)
    assert (run.command, Path(run.folder).is_dir()) == ("again", True)
    asynchronous = played.run(dataclasses.replace(SCHEDULE, mode="async"))
    assert (asynchronous.problems, asynchronous.minibatches) == ((), 856)
    assert not (tmp_path / "run-7-async").exists()


@pytest.mark.parametrize("error", [Missed("ps-0 ended with 70"), FileNotFoundError("no status.json")])
def test_a_job_that_does_not_end_well_fails_the_run(tmp_path: Path, error: Exception) -> None:
    def play(is_disturbed: bool) -> Outcome:
        raise error

    run = Played(tmp_path, play).run(dataclasses.replace(SCHEDULE, mode="async"))
    assert run.problems == (str(error),)
    assert Path(run.folder).is_dir()


def test_the_limit_of_a_run_begins_anew_when_the_job_gets_further_and_not_when_it_comes_back(
    tmp_path: Path,
) -> None:
    async def play() -> list[float | None]:
        job, ends = ChaosJob(tmp_path, (), workers=1, partitions=0), []
        async with job._limit:
            for version in (1, 2, 1, 2, 3):
                job._note_version("worker-0", version)
                ends.append(job._limit.when())
        return ends

    first, second, *same, third = asyncio.run(play())
    assert first is not None
    assert second is not None
    assert third is not None
    assert first < second < third
    assert same == [second, second]


# ---------------------------------------------------------------- lines

HELLO = b"READY worker/3/0123456789ab."


@contextlib.asynccontextmanager
async def echo_behind_a_line() -> AsyncIterator[tuple[Network, int, bytearray]]:
    """A server that sends back what it gets, the port of the line to it, and what it got."""
    folder = Path(tempfile.mkdtemp(prefix="edlz-"))  # the path of a Unix socket must be short

    received = bytearray()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                received.extend(piece)
                writer.write(piece)
                await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(echo, folder / "s")
    network = Network()
    try:
        endpoint = await network.add_line("ps-0", str(folder / "s"))
        yield network, int(endpoint.rpartition(":")[2]), received
    finally:
        await network.close()
        server.close()
        await server.wait_closed()
        shutil.rmtree(folder)


async def connect(port: int, hello: bytes = HELLO) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(hello)
    assert await reader.readexactly(len(hello)) == hello
    return reader, writer


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


def test_a_line_carries_and_knows_whose_connection_it_is() -> None:
    async def play() -> None:
        async with echo_behind_a_line() as (network, port, _):
            _, writer = await connect(port)
            assert [network.connections_of(name) for name in ("worker-3", "ps-0", "worker-30")] == [1, 1, 0]
            writer.close()

    asyncio.run(play())


def test_a_link_that_is_cut_is_that_of_two_processes() -> None:
    async def play() -> None:
        async with echo_behind_a_line() as (network, port, _):
            reader, writer = await connect(port)
            others, other = await connect(port, HELLO.replace(b"/3/", b"/4/"))
            assert network.are_linked("ps-0", "worker-3")
            assert not network.are_linked("worker-4", "worker-3")
            cut = asyncio.create_task(network.cut_link("worker-3", "ps-0", 60.0))
            assert await read_to_end(reader) == b""
            other.write(b"y" * 1000)
            assert await others.readexactly(1000) == b"y" * 1000
            _, again = await asyncio.open_connection("127.0.0.1", port)
            again.write(HELLO)
            assert not network.are_linked("worker-3", "ps-0")
            for end in (writer, other, again):
                end.close()
            cut.cancel()

    asyncio.run(play())


@pytest.mark.parametrize("process", ["worker-3", "ps-0"])
def test_a_cut_breaks_in_the_middle_of_a_piece_and_meets_nobody_else(process: str) -> None:
    async def play() -> None:
        async with echo_behind_a_line() as (network, port, received):
            reader, writer = await connect(port)
            others, other = await connect(port, HELLO.replace(b"/3/", b"/4/"))
            cut = asyncio.create_task(network.cut(process, 60.0))
            await asyncio.sleep(0)  # it has begun
            writer.write(b"x" * 1000)
            assert len(await read_to_end(reader)) < 1000
            assert received.count(b"x") == 500
            if process == "worker-3":
                other.write(b"y" * 1000)
                assert await others.readexactly(1000) == b"y" * 1000
            again, refused = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                refused.write(HELLO)
                await refused.drain()
            assert len(await read_to_end(again)) < len(HELLO)
            for end in (writer, other, refused):
                end.close()
            cut.cancel()

    asyncio.run(play())


def test_a_delay_holds_up_what_a_process_sends_and_gets() -> None:
    async def play() -> None:
        async with echo_behind_a_line() as (network, port, _):
            reader, writer = await connect(port)
            other = asyncio.create_task(network.delay("worker-4", 0.001, 0.0))
            delay = asyncio.create_task(network.delay("worker-3", 0.001, 0.0))
            await asyncio.sleep(0)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            await delay
            assert not other.done()  # it waits for a piece of that worker's
            other.cancel()
            writer.close()

    asyncio.run(play())


@pytest.mark.parametrize("server", ["ps-0", ""])
def test_what_is_held_goes_no_further_until_it_may(server: str) -> None:
    async def play() -> None:
        async with echo_behind_a_line() as (network, port, received):
            is_asked, may_pass = network.hold("digest-3", server)
            assert network.reached == set()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HELLO.replace(b"worker", b"digest"))
            await is_asked.wait()
            assert network.reached == {"ps-0"}
            assert not received
            assert network.hold("digest-3", server) == (is_asked, may_pass)
            assert network.held == "ps-0"
            may_pass.set()
            assert await reader.readexactly(len(HELLO))
            writer.close()

    asyncio.run(play())


@pytest.mark.skipif(not can_mount(), reason="only root can mount a small disk")
def test_a_small_disk_is_full_for_a_while(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    with SmallDisk(folder) as disk:
        (folder / "before").write_text("there")
        disk.fill()
        with pytest.raises(OSError, match="No space"):
            (folder / "more").write_bytes(bytes(1 << 16))
        disk.empty()
        (folder / "after").write_text("there")
    assert not folder.is_mount()
    assert {path.name for path in folder.iterdir()} >= {"before", "after"}


def test_a_server_that_is_away_closes_the_line() -> None:
    async def play() -> None:
        network = Network()
        endpoint = await network.add_line("ps-0", "/nonexistent/s")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(endpoint.rpartition(":")[2]))
        assert await read_to_end(reader) == b""
        assert network.connections_of("ps-0") == 0
        writer.close()
        await network.close()

    asyncio.run(play())
