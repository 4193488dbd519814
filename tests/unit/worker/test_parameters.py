"""Whole vectors, assembled from the partitions' slices and moved by a worker's own steps."""

import numpy as np

from edlz.services.protocol.layout import Layout, Variable, VectorLayout
from edlz.services.protocol.messages import Exchanged, OptimizerSpec
from edlz.services.worker.parameters import Parameters


def test_a_workers_own_step_decays_what_a_partitions_would() -> None:
    variables = tuple(Variable(path=f"v{place}", shape=(16,)) for place in range(3))
    layout = Layout(dense=VectorLayout(variables=variables))
    spec = OptimizerSpec(name="SGD", settings={"weight_decay": 0.5, "momentum": 0.5}, undecayed=(1,))
    part = Exchanged(
        incarnation=(1, 1),
        mark=0,
        finished=False,
        version=0,
        dense=np.ones(48, np.float32),
        state=np.zeros(0, np.float32),
        counters=np.zeros(0, np.int64),
    )
    parameters = Parameters(layout, 1, spec)
    parameters.assemble((part,))

    dense, _, _ = parameters.step(np.zeros(48, np.float32), 0.5)

    assert dense.reshape(3, 16)[:, 0].tolist() == [0.75, 1.0, 0.75]
