"""What Prometheus reads of a job: against the list of names, with its own parser."""

import dataclasses
import json
import re
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from edlz.services.master.page.metrics import metrics_text
from edlz.services.master.progress.measures import Measured, Measures, OperationCount, p99
from edlz.services.protocol.buckets import DURATIONS_S, STALENESS, Buckets, quantile
from edlz.services.protocol.messages import OperationTelemetry, PartitionTelemetry, WorkerTelemetry
from tests.progresses import progress_of
from tests.shown_pages import content
from tests.statuses import partition_status

DASHBOARD = Path(__file__).parents[4] / "docs" / "grafana-dashboard.json"

NAMES = {
    "edlz_job_info": ("gauge", {"name", "strategy", "mode"}),
    "edlz_waits_for_data_seconds": ("gauge", set()),
    "edlz_job_state": ("gauge", {"state"}),
    "edlz_progress_ratio": ("gauge", set()),
    "edlz_model_version": ("gauge", set()),
    "edlz_records_applied_total": ("counter", set()),
    "edlz_minibatches_applied_total": ("counter", set()),
    "edlz_minibatches_duplicate_total": ("counter", set()),
    "edlz_gradients_rejected_total": ("counter", {"reason"}),
    "edlz_tasks": ("gauge", {"state"}),
    "edlz_task_failures_total": ("counter", {"reason"}),
    "edlz_task_duration_seconds": ("histogram", set()),
    "edlz_step_duration_seconds": ("summary", {"phase"}),
    "edlz_gradient_staleness_versions": ("histogram", set()),
    "edlz_loss": ("gauge", set()),
    "edlz_eval_metric": ("gauge", {"name"}),
    "edlz_workers": ("gauge", {"state"}),
    "edlz_group_members": ("gauge", set()),
    "edlz_worker_restarts_total": ("counter", {"reason"}),
    "edlz_worker_records_total": ("counter", {"worker"}),
    "edlz_ps_requests_total": ("counter", {"ps", "op"}),
    "edlz_ps_request_duration_seconds": ("histogram", {"ps", "op"}),
    "edlz_ps_rows": ("gauge", {"ps", "table"}),
    "edlz_ps_memory_bytes": ("gauge", {"ps"}),
    "edlz_network_bytes_total": ("counter", {"role", "direction"}),
    "edlz_checkpoint_timestamp_seconds": ("gauge", set()),
    "edlz_checkpoint_duration_seconds": ("gauge", set()),
    "edlz_recovery_duration_seconds": ("gauge", {"role"}),
}
"""The contract."""

MEASURED = Measured(
    records=70_800,
    minibatches=708,
    duplicates=1,
    rejected={"stale": 2},
    steps=708,
    step_s={"read": 0.7, "pull": 1.4, "compute": 28.0, "push": 1.4, "wait": 1.0},
    staleness=(1, 2, *(0,) * (len(STALENESS) - 1)),
    staleness_sum=2.0,
    task_s=(0, 1, 3, *(0,) * (len(DURATIONS_S) - 2)),
    task_total_s=0.02,
    task_failures={"error": 1},
    restarts={"killed": 1},
    recovery_s={"worker": 4.8},
    worker_records={"0": 35_000},
    operations={("0", "exchange"): OperationCount((5, 0, 1), 0.01)},
    table_rows={("0", "embedding/ids"): 8000},
    network={("ps", "in"): 5, ("ps", "out"): 7, ("master", "in"): 1, ("master", "out"): 2},
    checkpoint_at=1_777_885_000.0,
    checkpoint_s=0.4,
)


def families(measured: Measured = MEASURED, mode: str = "async") -> dict[str, tuple[str, set[str]]]:
    text = metrics_text(msgspec_replaced(measured, mode)).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, f"{family.name} has no HELP"
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = (family.type, labels)
    return found


def msgspec_replaced(measured: Measured, mode: str):  # type: ignore[no-untyped-def]
    return dataclasses.replace(content(mode=mode), measured=measured)


def test_names_types_and_labels_are_those_of_the_list() -> None:
    assert families() == NAMES


def test_each_has_help_and_type_also_at_the_beginning_of_a_job() -> None:
    text = metrics_text(msgspec_replaced(Measured(), "sync")).decode()
    for name in NAMES:
        assert re.search(rf"^# HELP {name} \S", text, re.MULTILINE), name
        assert re.search(rf"^# TYPE {name} \w+$", text, re.MULTILINE), name


def test_of_a_job_without_an_end_no_share_is_told() -> None:
    shown = content()
    status = msgspec.structs.replace(shown.status, is_endless=True, ratio=1.0)
    text = metrics_text(dataclasses.replace(shown, status=status)).decode()
    assert "# TYPE edlz_progress_ratio gauge" in text
    assert "\nedlz_progress_ratio " not in text


def test_what_they_say() -> None:
    text = metrics_text(msgspec_replaced(MEASURED, "async")).decode()
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["edlz_job_state", ("state", "Training")] == 1
    assert samples["edlz_job_state", ("state", "Failed")] == 0
    assert samples["edlz_workers", ("state", "training")] == 3
    assert samples["edlz_gradient_staleness_versions_bucket", ("le", "1")] == 3
    assert samples["edlz_gradient_staleness_versions_bucket", ("le", "+Inf")] == 3
    assert samples["edlz_step_duration_seconds_sum", ("phase", "compute")] == 28.0
    assert samples["edlz_ps_requests_total", ("op", "exchange"), ("ps", "0")] == 6


def test_of_a_group_there_is_no_parameter_server_and_how_many_members() -> None:
    seen = msgspec_replaced(MEASURED, "sync")
    workers = tuple(
        msgspec.structs.replace(worker, rank=rank if rank < 3 else None)
        for rank, worker in enumerate(seen.status.workers)
    )
    status = msgspec.structs.replace(seen.status, workers=workers, is_allreduce=True)
    text = metrics_text(dataclasses.replace(seen, status=status)).decode()
    assert "edlz_group_members 3.0" in text
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in samples if line.startswith("edlz_ps_") or 'role="ps"' in line] == []


def test_what_members_send_each_other_is_counted() -> None:
    measures = Measures(are_members=True)
    for _ in range(2):
        measures.on_worker(WorkerTelemetry(minibatches=3, sum_s=0.5, bytes_in=100, bytes_out=80))
    assert measures.step_s["sum"] == 1.0
    assert measures.members_bytes == {"in": 200, "out": 160}


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    asked = set(re.findall(r"edlz_\w+", json.dumps(json.loads(DASHBOARD.read_text()))))
    known = {*NAMES, *(f"{name}_{part}" for name in NAMES for part in ("bucket", "sum", "count"))}
    assert asked
    assert asked <= known


# ---------------------------------------------------------------- the counts


def told(**about: object) -> PartitionTelemetry:
    return msgspec.structs.replace(PartitionTelemetry(), **about)


def test_counts_of_a_partition_never_fall_with_its_lives() -> None:
    measures = Measures()
    for duplicates in (3, 5, 0, 2):
        status = msgspec.structs.replace(
            partition_status(), telemetry=told(duplicates=duplicates, rejected=(("stale", duplicates),))
        )
        measures.sample([status], records=10 * duplicates, minibatches=duplicates)
    assert measures.summed("duplicates") == {"0": 7}
    assert measures.summed("rejected") == {"stale": 7}
    assert measures.count("records") == 70


def test_staleness_of_the_last_seconds() -> None:
    measures, counts = Measures(), [0] * (len(STALENESS) + 1)
    assert measures.staleness_now is None
    for step in range(30):
        counts[1 if step < 15 else 5] += 10
        status = msgspec.structs.replace(
            partition_status(), telemetry=told(staleness=tuple(counts), staleness_sum=float(step))
        )
        measures.sample([status], 0, 0)
        if step == 12:
            assert measures.staleness_now == (1.0, 1.0)
    assert measures.staleness_now == (6.0, 6.0)


@pytest.mark.parametrize(
    ("strategy", "sending", "parts"),
    [
        ("ParameterServerStrategy", "push", ["read", "pull", "compute", "push", "sum", "wait"]),
        ("AllreduceStrategy", "send", ["read", "compute", "send", "sum", "wait"]),
    ],
)
def test_the_parts_of_a_step_are_called_as_on_the_page(strategy: str, sending: str, parts: list[str]) -> None:
    progress = progress_of(strategy)
    progress.measures.on_worker(WorkerTelemetry(minibatches=2, push_s=3.0))
    text = metrics_text(dataclasses.replace(content(), measured=progress.measured((0, 0)))).decode()
    found = re.findall(r'edlz_step_duration_seconds_sum{phase="(\w+)"} (.*)', text)
    assert [name for name, _ in found] == parts
    assert {name for name, seconds in found if float(seconds)} == {sending}


def test_steps_of_workers() -> None:
    measures = Measures()
    for _ in range(2):
        measures.on_worker(WorkerTelemetry(minibatches=3, compute_s=0.3, wait_s=0.1))
    assert measures.steps == 6
    assert measures.step_s["compute"] == pytest.approx(0.6)


def test_requests_of_a_partition_and_the_time_of_99_in_100() -> None:
    measures, buckets = Measures(), Buckets(DURATIONS_S)
    for seconds in [0.0005] * 98 + [0.04] * 2:
        buckets.note(seconds)
    operation = OperationTelemetry(name="exchange", seconds=buckets.total, counts=tuple(buckets.counts))
    status = msgspec.structs.replace(partition_status(), telemetry=told(operations=(operation,)))
    measures.sample([status], 0, 0)
    (found,) = measures.operations().values()
    assert sum(found.counts) == 100
    assert found.seconds == pytest.approx(98 * 0.0005 + 0.08)
    assert p99([found], DURATIONS_S) == 0.05
    assert quantile(DURATIONS_S, (0,) * 17, 0.5) is None
