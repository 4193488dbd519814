"""Who exports the finished model, and what becomes of the job if it cannot be exported."""

from typing import Any

import msgspec
import pytest

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.errors import RemoteProtocolError
from edlz.services.master.core.exports import AGAIN_S, Exports
from edlz.services.master.core.vocabulary.instructions import Announce, Journal
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.messages import (
    ExportLease,
    ExportReport,
    ExportWish,
    FailedExport,
    Failure,
    Job,
    WorkerOrders,
    WorkerStatus,
)
from edlz.services.protocol.plan import Shard
from edlz.services.worker.core.exports import Exports as WorkersExports
from edlz.services.worker.core.instructions import ExportModel
from edlz.services.worker.core.order_check import check_orders
from tests import builders

LIVES = ((1, 7),)
WISH = ExportWish(output="/out")
REPORT = ExportReport(digest="d", wish=WISH, place="/out/1", size_bytes=5)
FULL = Failure(code="data", message="/out cannot be written: No space left on device", help="make room there")


def job(epochs: int = 1, **config: Any) -> Job:
    shard = Shard(name="x", first=0, count=4)
    about = {"records_per_task": 4, "minibatch_size": 1, "slots": 1, "seed": 0}
    plan = builders.plan(
        shards=(shard,) if epochs else (), epochs=epochs, evaluation_shards=(shard,), **about
    )
    return builders.job(plan, config=config)


def core_of(job: Job, journal: JournalState) -> Exports:
    return Exports(job, JobSettings.of(job.config), journal)


def exports(**config: Any) -> Exports:
    core = core_of(job(**(config or {"output": "/out"})), JournalState())
    core.begin("d", LIVES, 9)
    return core


def status(worker: int = 0, **fields: Any) -> WorkerStatus:
    about = {"boot": 1, "incarnation": (1, worker), "seq": 1, "era": (1, 1)}
    return WorkerStatus(worker=str(worker), **{**about, **fields})


def test_one_worker_gets_the_lease_and_another_one_when_it_is_gone() -> None:
    core = exports()
    lease = core.lease(status(0), 9, 0.0)
    assert lease == ExportLease(digest="d", wish=WISH, checkpoint=9)
    assert core.lease(status(1), 9, 0.0) is None
    core.note((1, 0), "d")
    assert core.lease(status(1), 9, 1.0) is None
    core.release((1, 0))
    assert core.lease(status(1), None, 2.0) == ExportLease(digest="d", wish=WISH)


def test_a_lease_that_did_not_arrive_is_given_again() -> None:
    core = exports()
    core.lease(status(0), None, 0.0)
    core.note((1, 0), "")
    assert core.lease(status(1), None, 1.0) is not None


def test_a_master_that_was_started_again_learns_who_exports() -> None:
    core = core_of(job(output="/out"), JournalState())
    core.note((1, 0), "d")
    core.begin("d", LIVES, 9)
    assert core.lease(status(1), None, 1.0) is None


@pytest.mark.parametrize(
    "fields",
    [{"holding": (1,)}, {"evaluating": ((1, 1),)}, {"exporting": "e"}],
    ids=lambda fields: next(iter(fields)),
)
def test_who_is_at_something_else_gets_none(fields: dict[str, Any]) -> None:
    assert exports().lease(status(**fields), None, 0.0) is None


def test_what_was_reported_counts_after_a_loss_unless_the_model_is_another_one() -> None:
    core = exports()
    assert core.take(REPORT)[0] == Journal({"exported": REPORT})
    assert core.take(REPORT) == [], "a status that is repeated"
    core.put_off()
    assert not core.is_done
    assert core.begin("d", ((1, 8),), 9) == []
    assert core.is_done
    assert isinstance(core.begin("e", ((1, 9),), 9)[0], Announce)
    assert core.is_open


def test_the_journal_knows_what_is_exported_and_another_place_is_another_export() -> None:
    for output, is_done in (("/out", True), ("/elsewhere", False)):
        core = core_of(job(output=output), JournalState(exported=REPORT))
        core.begin("d", LIVES, 9)
        assert core.is_done is is_done


def test_what_the_callbacks_wish_for_is_journalled_once_and_a_flag_wins() -> None:
    wish = ExportWish(output="/by-callback")
    core = core_of(job(), JournalState())
    assert not core.are_wanted
    assert core.on_wish(wish) == [Journal({"export_wish": wish})]
    assert core.on_wish(wish) == []
    assert core.are_wanted
    assert core_of(job(), JournalState(export_wish=wish)).are_wanted
    flagged = core_of(job(output="/out"), JournalState(export_wish=wish))
    assert flagged.on_wish(wish) == []
    flagged.begin("d", LIVES, 9)
    lease = flagged.lease(status(), None, 0.0)
    assert lease is not None
    assert lease.wish == WISH


def test_a_job_that_only_evaluates_exports_nothing() -> None:
    core = core_of(job(epochs=0, output="/out"), JournalState())
    assert core.on_wish(WISH) == []
    assert not core.are_wanted


def test_the_formats_follow_from_the_flags() -> None:
    for config, formats in (
        ({"output": "m.keras"}, ("keras",)),
        ({"output": "out"}, ("saved_model",)),
        (
            {"output": "out", "output_format": "keras,safetensors", "unknown_ids": "zeros"},
            ("keras", "safetensors"),
        ),
    ):
        lease = exports(**config).lease(status(), None, 0.0)
        assert lease is not None
        assert lease.wish.formats == formats
        assert lease.wish.unknown_ids == config.get("unknown_ids", "")


def failed(core: Exports, failure: Failure, now: float, worker: int = 0) -> Any:
    assert core.lease(status(worker), None, now) is not None
    found = core.fail((1, worker), FailedExport(digest="d", failure=failure), now)
    assert core.fail((1, worker), FailedExport(digest="d", failure=failure), now) is None, "a repeated status"
    core.note((1, worker), "")
    return found


def test_a_full_disk_ends_the_job_at_the_third_try() -> None:
    core = exports()
    assert failed(core, FULL, 0.0) is None
    assert core.lease(status(1), None, AGAIN_S / 2) is None, "it is given a moment"
    assert failed(core, FULL, AGAIN_S) is None
    failure = failed(core, FULL, 3 * AGAIN_S)
    assert failure.text == f"the model could not be exported: {FULL.message}"
    assert failure.help == "make room there\nnothing is trained again by: edlz resume j --output=DIR"
    assert failure.exit_code == 1


@pytest.mark.parametrize("code", ["config", "model", "local-protocol"])
def test_what_cannot_be_exported_ends_the_job_at_once(code: str) -> None:
    failure = failed(exports(), Failure(code=code, message="no", traceback="T"), 0.0)
    assert (failure.text, failure.traceback) == ("the model could not be exported: no", "T")


def test_a_failure_does_not_count_if_a_partition_was_lost_meanwhile() -> None:
    core = exports()
    assert core.lease(status(), None, 0.0) is not None
    core.put_off()
    core.begin("d", ((1, 8),), 9)
    config = Failure(code="config", message="no")
    assert core.fail((1, 0), FailedExport(digest="d", failure=config), 0.0) is None
    assert core.fail((1, 1), FailedExport(digest="other", failure=config), 0.0) is None


def test_three_exporters_that_end_end_the_job() -> None:
    core = exports()
    assert core.on_death("0", "") is None
    assert core.on_death("0", "d") is None
    assert core.on_death("1", "d") is None
    failure = core.on_death("0", "d")
    assert failure is not None
    assert "ended its worker 3 times (workers 0, 1, 0)" in failure.text


# ---------------------------------------------------------------- the worker's side


def orders(**fields: Any) -> WorkerOrders:
    return WorkerOrders(term=1, seq=1, incarnation=(1, 1), **fields)


def test_a_worker_reports_until_that_is_noted() -> None:
    mine, lease = WorkersExports(), ExportLease(digest="d", wish=WISH)
    assert mine.on_orders(orders(export=lease)) == [ExportModel(lease)]
    assert (mine.holding, mine.is_busy) == ("d", True)
    assert mine.on_orders(orders(export=lease)) == [], "one at a time"
    assert mine.on_orders(orders(noted_export="d")) == []
    assert mine.is_busy, "it has not ended"
    mine.on_exported(REPORT)
    mine.on_orders(orders(noted_export="other"))
    assert mine.report == REPORT
    mine.on_orders(orders(noted_export="d"))
    assert (mine.report, mine.holding) == (None, "")
    mine.on_orders(orders(export=lease))
    mine.on_failed(FULL)
    assert mine.failed == FailedExport(digest="d", failure=FULL)
    mine.on_orders(orders(noted_export="d"))
    assert mine.failed is None
    assert not mine.is_busy


def test_an_export_of_no_job_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="work of a job that it has not told"):
        check_orders(orders(export=ExportLease(digest="d", wish=WISH)), None, frozenset())


def test_reports_are_json_for_the_journal() -> None:
    assert msgspec.json.decode(msgspec.json.encode(REPORT), type=ExportReport) == REPORT
