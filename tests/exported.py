"""Models with values as if they had been trained, checkpoints of them, and who runs what is exported."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edlz.core_ext.ids import partition_of
from edlz.core_ext.memory import aligned_empty
from edlz.core_ext.optimizers import make_optimizer
from edlz.core_ext.table import EmbeddingTable, Initializer
from edlz.services.configuration.job_config import JobConfig
from edlz.services.protocol.layout import slice_bounds
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.plan import Plan
from edlz.services.protocol.seeds import table_seed
from edlz.services.storage.checkpoint_records import version_folder
from edlz.services.storage.checkpoint_writing import Finished, write_manifest, write_part
from edlz.services.storage.state import MemoryRows, State

__all__ = ["Call", "TrainedModel", "run_in_python", "run_session"]

HERE = Path(__file__).parent
VERSION = 7


class TrainedModel:
    """A model of a job, with values as if it had been trained.

    Parameters
    ----------
    known : sequence of int, optional
        The ids that have rows, in each table that may have them; half of those that the first minibatch looks
        up, if none are given.
    """

    def __init__(self, config: JobConfig, plan: Plan, known: Sequence[int] | None = None) -> None:
        from edlz.services.worker.engine.feed.task_reader import TaskReader
        from edlz.services.worker.engine.model.job_model import JobModel
        from edlz.services.worker.engine.model.model_updates import ModelUpdates

        self.config, self.plan = config, plan
        self._reader = TaskReader(plan)
        self.model = JobModel(config, plan, self._reader)
        self.built = self.model.built
        updates = ModelUpdates(self.model.contract, self.built, plan)
        self.optimizer, self.tables = updates.optimizer, updates.tables
        draw = np.random.default_rng(3)
        dense, state, counters = self.built.initial_vectors()
        self.dense = _aligned(dense + draw.normal(0, 0.1, dense.shape).astype(np.float32))
        self.state = _aligned(np.abs(state + draw.normal(0, 0.1, state.shape).astype(np.float32)))
        self.counters = _aligned(counters + 3)
        sizes = [layer.input_dim for layer in self.built.tables]
        self.ids = (
            self._looked_up()
            if known is None
            else [np.array([i for i in known if size is None or 0 <= i < size], np.int64) for size in sizes]
        )
        self.values = [
            draw.normal(0, 0.5, (len(ids), table.dim)).astype(np.float32)
            for ids, table in zip(self.ids, self.tables, strict=True)
        ]

    def close(self) -> None:
        self.model.close()
        self._reader.close()

    def save(self, folder: Path, partitions: int = 1) -> Path:
        """Write a checkpoint; rows lie in its parts in an order that depends on their number."""
        infos = []
        for partition in range(partitions):
            state = self._state(partition, partitions)
            info = write_part(folder, state, version=VERSION, number=VERSION, run="r", tag="a")
            assert info is not None
            infos.append(info)
        finished = Finished(
            job="tiny",
            run="r",
            mode="sync",
            number=VERSION,
            epoch=1,
            minibatches=11,
            settings=self.config.model_settings(),
        )
        write_manifest(folder, VERSION, infos, finished, tag="m")
        return version_folder(folder, VERSION)

    def evaluate(self) -> tuple[list[Any], list[Any]]:
        """Return features of two minibatches, and what the worker's evaluation predicts for them."""
        from edlz.services.worker.engine.model.tables import group_tables
        from edlz.services.worker.engine.rows.ids_function import IdsFunction
        from edlz.services.worker.engine.rows.row_inputs import Located, RowBuffers
        from edlz.services.worker.engine.step import Forward, LoadedVectors

        contract, spec, lanes = self.model.contract, self.model.feed.spec, self.model.lanes
        ids_of = IdsFunction(contract, self.built, spec, is_training=False) if self.tables else None
        forward = Forward(contract, self.built, spec, ids_of)
        vectors = LoadedVectors(self.dense, self.state, self.counters)
        lanes.begin(0, self.plan.task_range(0))
        features, predictions = [], []
        for index in range(2):
            element, inputs = lanes.minibatch(0, index).element, ()
            if ids_of is not None:
                ids, sizes = ids_of(element)
                groups, places = group_tables(self.built.tables, ids, 1)
                located = Located(self.built.tables, places, [len(group.ids) for group in groups], sizes)
                rows = [self.served(place, group.ids) for place, group in enumerate(groups)]
                inputs = located.inputs(rows, RowBuffers())
            features.append(element[0])
            predictions.append(forward(element, vectors, inputs)[1])
        lanes.drop(0)
        return features, predictions

    def served(self, place: int, ids: Any) -> Any:
        """Return what partitions give for these ids, shape (n, dim)."""
        spec = self.tables[place]
        initializer = Initializer(spec.initializer.kind, spec.initializer.a, spec.initializer.b)
        table = EmbeddingTable(spec.dim, [], initializer, table_seed(self.plan.seed, place))
        view = table.extend(len(self.ids[place]))
        view[:] = self.values[place].reshape(view.shape)
        table.index(self.ids[place])
        rows = np.empty(len(ids) * spec.dim, np.float32)
        table.gather(np.ascontiguousarray(ids), rows)
        return rows.reshape(-1, spec.dim)

    def _looked_up(self) -> list[Any]:
        """Return every other one of the ids of the first minibatch, for each table."""
        from edlz.services.worker.engine.rows.ids_function import IdsFunction

        if not self.tables:
            return []
        ids_of = IdsFunction(self.model.contract, self.built, self.model.feed.spec, is_training=False)
        element = self.model.lanes.first_element([(0, self.plan.task_range(0))])
        return [np.unique(ids)[::2].copy() for ids in ids_of(element)[0]]

    def _state(self, partition: int, partitions: int) -> State:
        def own(vector: Any) -> Any:
            lo, hi = slice_bounds(len(vector), partition, partitions)
            return vector[lo:hi]

        return State(
            plan_hash=self.plan.hash,
            base_digest="digest",
            partition=partition,
            partitions=partitions,
            layout=self.built.layout,
            optimizer=self.optimizer,
            era=(1, 1),
            version=VERSION,
            iterations=VERSION,
            ledger=LedgerRecord(finished=(0, 3), minibatches=11),
            counts=np.array([4, 4, 3], np.int32),
            dense=own(self.dense),
            state=own(self.state),
            counters=own(self.counters),
            slots={},
            tables=self.tables,
            rows=[self._rows(place, partition, partitions) for place in range(len(self.ids))],
        )

    def _rows(self, place: int, partition: int, partitions: int) -> MemoryRows:
        spec, ids = self.tables[place], self.ids[place]
        optimizer = make_optimizer(spec.optimizer.name, spec.optimizer.settings)
        width = spec.dim + sum(slot.size for slot in optimizer.row_slots(spec.dim))
        rows = np.full((len(ids), width), 0.25, np.float32)
        rows[:, : spec.dim] = self.values[place]
        shuffled = np.random.default_rng(partitions).permutation(len(ids))
        mine = shuffled[partition_of(ids[shuffled], partitions) == partition]
        return MemoryRows(ids[mine], rows[mine])


def _aligned(vector: Any) -> Any:
    out = aligned_empty(len(vector), vector.dtype)
    out[:] = vector
    return out


# -- others that run an export


@dataclass(frozen=True)
class Call:
    """A SavedModel and what its signature is given: arrays by name, and lists of bytes."""

    folder: Path
    inputs: Mapping[str, Any]
    texts: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    signature: str = "serving_default"


_IN_PYTHON = """
import base64, json, sys
sys.modules["edlz"] = None
import tensorflow as tf
import numpy as np
with open(sys.argv[1]) as file:
    runs = json.load(file)
tf.config.threading.set_intra_op_parallelism_threads(runs[0]["threads"])
tf.config.threading.set_inter_op_parallelism_threads(runs[0]["threads"])
for run in runs:
    loaded = tf.saved_model.load(run["folder"])
    given = {name: tf.constant(value) for name, value in np.load(run["given"]).items()}
    for name, texts in run["text_inputs"].items():
        given[name] = tf.constant([base64.b64decode(text) for text in texts])
    found = loaded.signatures[run["signature"]](**given)
    np.savez(run["found"], **{name: value.numpy() for name, value in found.items()})
"""


def run_in_python(calls: Sequence[Call], place: Path, threads: int = 2) -> list[dict[str, Any]]:
    """Call SavedModels in one process that has TensorFlow and cannot import edlz; return the outputs by name."""
    return _outputs([sys.executable, "-c", _IN_PYTHON], calls, place / "python", threads)


def run_session(calls: Sequence[Call], place: Path, threads: int = 2) -> list[dict[str, Any]]:
    """Call SavedModels by the C++ session loader, in one process without TensorFlow's Python."""
    return _outputs([sys.executable, str(HERE / "session_loader.py")], calls, place / "session", threads)


def _outputs(command: list[str], calls: Sequence[Call], place: Path, threads: int) -> list[dict[str, Any]]:
    place.mkdir()
    requests = [_request(call, place, number, threads) for number, call in enumerate(calls)]
    (place / "requests.json").write_text(json.dumps(requests))
    done = subprocess.run(
        [*command, str(place / "requests.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [dict(np.load(request["found"])) for request in requests]


def _request(call: Call, place: Path, number: int, threads: int) -> dict[str, Any]:
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    definition = saved_model_pb2.SavedModel.FromString((call.folder / "saved_model.pb").read_bytes())
    about = definition.meta_graphs[0].signature_def[call.signature]
    given = place / f"in{number}.npz"
    # Texts are objects to TensorFlow, and bytes of one length in a file.
    arrays = {name: np.asarray(value) for name, value in call.inputs.items()}
    np.savez(
        given,
        **{name: array.astype("S") if array.dtype == object else array for name, array in arrays.items()},
    )
    texts = {name: [base64.b64encode(t).decode() for t in of_one] for name, of_one in call.texts.items()}
    return {
        "library": str(Path(tf.__file__).parent / "libtensorflow_cc.so.2"),
        "threads": threads,
        "folder": str(call.folder),
        "signature": call.signature,
        "given": str(given),
        "inputs": {name: about.inputs[name].name for name in call.inputs},
        "texts": {about.inputs[name].name: of_one for name, of_one in texts.items()},
        "text_inputs": texts,
        "found": str(place / f"out{number}.npz"),
        "outputs": {name: info.name for name, info in about.outputs.items()},
    }
