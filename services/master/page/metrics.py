"""A job's metrics in the text format of Prometheus.

Names, types and labels are a contract.  No label has more values than there are live workers, parameter servers, tables,
or words of ours.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import generate_latest

from edlz.services.master.page.content import Content
from edlz.services.protocol.buckets import DURATIONS_S, STALENESS

__all__ = ["metrics_text"]

_STATES = (
    "Pending",
    "Starting",
    "Training",
    "Evaluating",
    "Exporting",
    "Predicting",
    "Analyzing",
    "Stopping",
    "Succeeded",
    "Failed",
    "Stopped",
)
_WORKER_STATES = (
    "starting",
    "training",
    "waiting",
    "evaluating",
    "predicting",
    "analyzing",
    "exporting",
    "done",
    "lost",
)


def metrics_text(content: Content) -> bytes:
    """Return all metrics of a job."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(content))
    return generate_latest(registry)


class _Collected:
    """What a registry collects: the families of one content."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        for part in (_job, _work, _distributions, _workers, _servers, _checkpoints):
            yield from part(self._content)


def _job(content: Content) -> Iterator[Metric]:
    status = content.status
    about = {"name": status.name, "strategy": status.strategy, "mode": status.mode}
    yield _gauge("edlz_job_info", "The job; always 1.", [(about, 1)])
    states = [({"state": state}, status.state == state) for state in _STATES]
    yield _gauge("edlz_job_state", "1 for the state that the job is in, 0 for the others.", states)
    share: _Samples = [] if status.share is None else [({}, status.share)]
    yield _gauge("edlz_progress_ratio", "How much of the job is done, from 0 to 1.", share)
    waits: _Samples = [] if status.waits_for_data_s is None else [({}, status.waits_for_data_s)]
    yield _gauge("edlz_waits_for_data_seconds", "Since when nothing is left to train on.", waits)
    yield _gauge("edlz_model_version", "Updates that are in the model.", [({}, status.version)])
    loss: _Samples = [] if status.loss is None else [({}, status.loss)]
    yield _gauge("edlz_loss", "The mean of the loss that workers told last.", loss)
    newest = status.evaluations[-1].metrics if status.evaluations else {}
    yield _gauge(
        "edlz_eval_metric",
        "Of the newest evaluation, by metric.",
        [({"name": k}, v) for k, v in newest.items()],
    )


def _work(content: Content) -> Iterator[Metric]:
    status, measured = content.status, content.measured
    yield _counter("edlz_records_applied", "Records whose gradients were applied.", [({}, measured.records)])
    yield _counter(
        "edlz_minibatches_applied", "Minibatches whose gradients were applied.", [({}, measured.minibatches)]
    )
    yield _counter(
        "edlz_minibatches_duplicate",
        "Gradients that came again, and were not applied again.",
        [({}, measured.duplicates)],
    )
    yield _counter(
        "edlz_gradients_rejected",
        "Gradients that were sent back, by reason.",
        _labelled("reason", measured.rejected),
    )
    leased = int(str(content.tasks.get("leased_count", 0)))
    tasks = {
        "todo": max(0, status.tasks_total - status.tasks_done - leased),
        "leased": leased,
        "done": status.tasks_done,
        "skipped": status.skipped_tasks,
    }
    yield _gauge("edlz_tasks", "Tasks to train on, by state.", _labelled("state", tasks))
    yield _counter(
        "edlz_task_failures",
        "Tasks that were tried in vain, by reason.",
        _labelled("reason", measured.task_failures),
    )


def _distributions(content: Content) -> Iterator[Metric]:
    measured = content.measured
    yield _histogram(
        "edlz_task_duration_seconds",
        "From a task's lease to its end.",
        DURATIONS_S,
        [({}, measured.task_s, measured.task_total_s)],
    )
    steps = SummaryMetricFamily("edlz_step_duration_seconds", "Parts of a worker's step.", labels=["phase"])
    for phase, seconds in measured.step_s.items():
        steps.add_metric([phase], count_value=measured.steps, sum_value=seconds)
    yield steps
    stale: Sequence[tuple[Mapping[str, str], Sequence[int], float]] = (
        [({}, measured.staleness, measured.staleness_sum)] if content.status.mode == "async" else []
    )
    yield _histogram(
        "edlz_gradient_staleness_versions",
        "Versions between the parameters that a gradient was computed on and those that it was applied to.",
        STALENESS,
        stale,
    )


def _workers(content: Content) -> Iterator[Metric]:
    status, measured = content.status, content.measured
    counts = dict.fromkeys(_WORKER_STATES, 0)
    for worker in status.workers:
        counts[worker.state] = counts.get(worker.state, 0) + 1
    counts["lost"] = max(0, status.target_workers - len(status.workers))
    yield _gauge(
        "edlz_workers", "Workers, by state; lost: those that are missing.", _labelled("state", counts)
    )
    members: _Samples = [({}, len(status.members))] if status.is_allreduce else []
    yield _gauge("edlz_group_members", "Workers that train together, in an all-reduce job.", members)
    yield _counter(
        "edlz_worker_restarts",
        "Workers that were replaced, by reason.",
        _labelled("reason", measured.restarts),
    )
    yield _counter(
        "edlz_worker_records",
        "Records that a live worker has computed.",
        _labelled("worker", measured.worker_records),
    )
    yield _gauge(
        "edlz_recovery_duration_seconds",
        "How long the newest replacement took to take part.",
        _labelled("role", measured.recovery_s),
    )


def _servers(content: Content) -> Iterator[Metric]:
    status, measured = content.status, content.measured
    is_group = status.is_allreduce  # then what stands for a partition is no server
    operations = () if is_group else measured.operations.items()
    requests = [({"ps": ps, "op": op}, sum(each.counts)) for (ps, op), each in operations]
    yield _counter("edlz_ps_requests", "Requests that a parameter server has answered.", requests)
    yield _histogram(
        "edlz_ps_request_duration_seconds",
        "How long a parameter server worked on a request.",
        DURATIONS_S,
        [({"ps": ps, "op": op}, each.counts, each.seconds) for (ps, op), each in operations],
        labels=("ps", "op"),
    )
    rows = [
        ({"ps": ps, "table": table}, count)
        for (ps, table), count in measured.table_rows.items()
        if not is_group
    ]
    yield _gauge("edlz_ps_rows", "Rows of an embedding table on a parameter server.", rows)
    memory = {view.id: view.memory_bytes for view in status.servers}
    yield _gauge("edlz_ps_memory_bytes", "Memory that the parameters take.", _labelled("ps", memory))
    network = [
        ({"role": role, "direction": way}, count)
        for (role, way), count in measured.network.items()
        if role != ("ps" if is_group else "worker")
    ]
    yield _counter("edlz_network_bytes", "Bytes of messages that services have taken and given.", network)


def _checkpoints(content: Content) -> Iterator[Metric]:
    at, took_s = content.measured.checkpoint_at, content.measured.checkpoint_s
    yield _gauge(
        "edlz_checkpoint_timestamp_seconds",
        "When the newest checkpoint was complete, in seconds since the epoch.",
        [] if at is None else [({}, at)],
    )
    yield _gauge(
        "edlz_checkpoint_duration_seconds",
        "How long the newest checkpoint took.",
        [] if took_s is None else [({}, took_s)],
    )


# ---------------------------------------------------------------- families

_Samples = Sequence[tuple[Mapping[str, str], float]]


def _labelled(label: str, values: Mapping[str, float]) -> _Samples:
    return [({label: name}, value) for name, value in values.items()]


def _gauge(name: str, about: str, samples: _Samples) -> Metric:
    family = GaugeMetricFamily(name, about, labels=_labels(samples))
    for labels, value in samples:
        family.add_metric(list(labels.values()), float(value))
    return family


def _counter(name: str, about: str, samples: _Samples) -> Metric:
    family = CounterMetricFamily(name, about, labels=_labels(samples))
    for labels, value in samples:
        family.add_metric(list(labels.values()), float(value))
    return family


def _labels(samples: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    return next((list(labels) for labels, _ in samples), [])


def _histogram(
    name: str,
    about: str,
    bounds: Sequence[float],
    samples: Sequence[tuple[Mapping[str, str], Sequence[int], float]],
    labels: Sequence[str] = (),
) -> Metric:
    family = HistogramMetricFamily(name, about, labels=list(labels))
    for values, counts, total in samples:
        seen, buckets = 0, []
        for place, bound in enumerate((*(f"{bound:g}" for bound in bounds), "+Inf")):
            seen += counts[place] if place < len(counts) else 0
            buckets.append((bound, float(seen)))
        family.add_metric(list(values.values()), buckets, total)
    return family
