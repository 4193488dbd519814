"""A job in one event loop: the real services on real sockets, with an engine of NumPy in place of Keras.

What shells do at their edges (a lost partition, a master that begins again, a core that raises) is seen here in
a second, without a process.  To be killed is to be cancelled: nobody is told, files and sockets are let go of.
"""

import asyncio
import dataclasses
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edlz.api.recordio import Writer
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.concluded_rounds import Decision, ShownRound
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.messages import ExportLease, ExportReport, Job, MetricState
from edlz.services.protocol.plan import Plan, TaskRange
from edlz.services.ps.service import PartitionService, serve_partition
from edlz.services.worker.core.computation import Built, Computed, GroupedIds, MakeEngine, Predicted
from edlz.services.worker.service import WorkerService
from tests.hurried_loop import HurriedLoop
from tests.simulation.model import LAYOUT, OPTIMIZER, compute_gradient, initial_vectors

__all__ = ["Cluster", "Life", "NumpyEngine", "play"]

PATIENCE_S = 300.0  # of a scene, by its own clock


class NumpyEngine:
    """Computes gradients that depend on every bit of the parameters, and on nothing else but the minibatch's name.

    Attributes
    ----------
    computed : list of (task, index)
    gate : threading.Event
        While it is not set, a computation waits before it begins.
    """

    def __init__(self, config: JobConfig, plan: Plan, partitions: int) -> None:
        self._plan = plan
        self._vectors = initial_vectors()
        self.computed: list[tuple[int, int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def build(self) -> Built:
        return Built(LAYOUT, OPTIMIZER, *initial_vectors())

    def check(self) -> None:
        """Its model is as it should be."""

    def learning_rate(self, version: int) -> float:
        return 0.01

    def table_rates(self, version: int, rate: float | None = None) -> tuple[float, ...]:
        return ()

    def load(self, dense: np.ndarray, state: np.ndarray, counters: np.ndarray) -> None:
        self._vectors = (dense, state, counters)

    def begin(self, task: int, *_: object, **__: object) -> None:
        """No records are read here."""

    def find_ids(self, task: int, index: int) -> tuple[GroupedIds, ...] | None:
        raise NotImplementedError("the model has no tables")

    def compute(self, task: int, index: int, rows: Sequence[np.ndarray] = ()) -> Computed:
        self.gate.wait()
        self.computed.append((task, index))
        parts = compute_gradient(*self._vectors, task, index)
        size = self._plan.minibatch_size
        is_last = (index + 1) * size >= self._plan.task_records(task)
        return Computed(task, index, is_last, *parts, loss=1.0, records=size, read_s=0.0, compute_s=0.0)

    def drop(self, task: int) -> None:
        """Nothing is kept of a task."""

    def evaluation_ids(self, task: int, records: TaskRange) -> tuple[GroupedIds, ...]:
        raise NotImplementedError("the model has no tables")

    def evaluate(
        self, task: int, records: TaskRange, rows: Sequence[np.ndarray] = ()
    ) -> tuple[int, MetricState]:
        return records.count, {"records": [np.array([float(records.count)])]}

    def predict(
        self, task: int, records: TaskRange, rows: Sequence[np.ndarray] = (), attempt: int = 0
    ) -> Predicted:
        return Predicted(records.count, None)

    def conclude(self, states: MetricState) -> dict[str, float]:
        return {name: float(values[0][0]) for name, values in states.items()}

    def decide(self, shown: ShownRound, metrics: dict[str, float]) -> Decision:
        return Decision(logs=metrics)

    batch_calls = None

    def export(self, job: Job, lease: ExportLease, on_progress: Callable[[], None]) -> ExportReport:
        raise NotImplementedError("its model cannot be exported")

    def close(self) -> None:
        self.gate.set()


class Life:
    """One service as a process would run it.

    Attributes
    ----------
    stop : Stop
    service : MasterService, PartitionService or WorkerService
        Once it has begun.
    error : BaseException or None
        What it has ended with.
    """

    def __init__(self, name: str) -> None:
        self.name, self.stop = name, Stop()
        self.service: Any = None
        self.error: BaseException | None = None
        self._task: asyncio.Task[int] | None = None

    def begin(self, main: Coroutine[Any, Any, int]) -> None:
        self._task = asyncio.create_task(main, name=self.name)

    @property
    def is_up(self) -> bool:
        return self._task is not None and not self._task.done()

    async def kill(self) -> None:
        """End it where it stands."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def code(self) -> int:
        """Wait for its end; return the exit code that its process would have."""
        assert self._task is not None
        try:
            return await self._task
        except EdlzError as error:
            self.error = error
            return error.exit_code
        except BaseExceptionGroup as group:
            self.error = group.exceptions[0]
            return getattr(self.error, "exit_code", 70)
        except Exception as error:
            self.error = error
            return 70


class Cluster:
    """The services of one job.

    Parameters
    ----------
    folder : Path
        Of short name: sockets lie in it.
    has_validation : bool
        Whether the job evaluates at its end.
    **flags
        Of the job.
    """

    def __init__(self, folder: Path, *, has_validation: bool = False, **flags: Any) -> None:
        self._folder = folder
        (folder / "data").mkdir()
        with Writer(folder / "data" / "part-0") as records:
            for number in range(24):
                records.write(b"%d" % number)
        about: dict[str, Any] = {
            "job_name": "tiny",
            "model_def": "a.b",
            "training_data": str(folder / "data"),
            "job_dir": str(folder / "job"),
            "num_workers": 2,
            "num_ps_pods": 2,
            "minibatch_size": 2,
            "records_per_task": 6,
            "num_epochs": 2,
            "grads_to_wait": 2,
            "worker_threads": 1,
            "master_addr": f"ipc://{folder}/m",
        }
        if has_validation:
            about["validation_data"] = about["training_data"]
        self.config = JobConfig(**{**about, **flags})
        self.lives: list[Life] = []

    def start(self, make_engine: MakeEngine = NumpyEngine) -> None:
        """Start everybody."""
        self.master = self.start_master()
        self.servers = [self.start_server(index) for index in range(self.config.num_ps_pods)]
        self.workers = [self.start_worker(ident, make_engine) for ident in range(self.config.num_workers)]

    def start_master(self) -> Life:
        life = self._life("master")
        config = dataclasses.replace(self.config, endpoint=self.config.master_addr)

        async def attend(service: MasterService) -> None:
            life.service = service
            await asyncio.Event().wait()

        life.begin(serve_master(config, life.stop, attend))
        return life

    def start_server(self, index: int) -> Life:
        life = self._life(f"ps-{index}")
        config = dataclasses.replace(self.config, ps_id=index, endpoint=f"ipc://{self._folder}/p{index}")

        def attend(service: PartitionService) -> None:
            life.service = service

        life.begin(serve_partition(config, life.stop, attend))
        return life

    def start_worker(self, ident: int, make_engine: MakeEngine = NumpyEngine) -> Life:
        life = self._life(f"worker-{ident}")
        life.service = WorkerService(
            dataclasses.replace(self.config, worker_id=ident), life.stop, make_engine
        )
        life.begin(life.service.run())
        return life

    def _life(self, name: str) -> Life:
        life = Life(name)
        self.lives.append(life)
        return life

    @property
    def status(self) -> JobStatus:
        """What screens are shown of the job."""
        assert self.master.service is not None
        return self.master.service.status()  # type: ignore[no-any-return]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        for life in self.lives:
            if life.is_up:
                await life.kill()


def play(scene: Callable[[Cluster], Coroutine[Any, Any, None]], **flags: Any) -> None:
    """Play a scene on a cluster whose services have not begun; in the end nothing of it is left."""

    async def run(folder: Path) -> None:
        cluster = Cluster(folder, **flags)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scene(cluster)
        except TimeoutError:
            for task in asyncio.all_tasks():
                task.print_stack(file=sys.stderr)
            raise
        finally:
            await cluster.end()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"

    with (
        tempfile.TemporaryDirectory(prefix="edlz-") as folder,
        asyncio.Runner(loop_factory=HurriedLoop) as runner,
    ):
        runner.run(run(Path(folder)))
