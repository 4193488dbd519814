"""The click-through model under TensorFlow's ParameterServerStrategy (see ctr.py).

A script of its own, which knows nothing of edlz: it needs TensorFlow 2.15, the last one with Keras 2, whose
optimizers the strategy can use.  One worker and one parameter server, each a process, and the coordinator,
which is this one.  The worker reads the same records as everybody, from a plain file of them, and decodes
a minibatch at a time.  Prints examples a second by minibatch size as JSON.

    python ctr_strategy.py RECORDS WORKER_PORT PS_PORT CHIEF_PORT SIZE ...
"""

import itertools
import json
import os
import subprocess
import sys
import time
from typing import Any

import tensorflow as tf

IDS, NUMBERS, VOCABULARY, DIM, HIDDEN = 26, 13, 1_000_000, 16, (256, 64)
LEARNING_RATE = 0.01
RECORD_BYTES = IDS * 8 + (NUMBERS + 1) * 4
WORDS_PER_ID = 2
STEPS_IN_FLIGHT, WARM_UP_STEPS, MEASURED_S = 8, 16, 4.0
WORKER_PROCESSOR, OTHERS_PROCESSOR = 0, 1


def main(records: str, ports: list[str], sizes: list[int]) -> None:
    cluster = {
        role: [f"127.0.0.1:{port}"] for role, port in zip(("worker", "ps", "chief"), ports, strict=True)
    }
    servers = [
        subprocess.Popen([sys.executable, __file__, "--serve", role, json.dumps(cluster)])
        for role in ("worker", "ps")
    ]
    try:
        _hold_to(OTHERS_PROCESSOR)
        speeds = _train(cluster, records, sizes)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    sys.stdout.write(json.dumps(speeds) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the coordinator's threads would wait for servers that are gone


def serve(role: str, cluster: dict[str, list[str]]) -> None:
    _hold_to(WORKER_PROCESSOR if role == "worker" else OTHERS_PROCESSOR)
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=role, task_index=0, config=config).join()


def _hold_to(processor: int) -> None:
    if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {processor})


def _train(cluster: dict[str, list[str]], records: str, sizes: list[int]) -> dict[str, float]:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc"
    )
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        rows = tf.Variable(tf.random.uniform((VOCABULARY, DIM), -0.05, 0.05))
        weights = _weights()
        optimizer = tf.keras.optimizers.legacy.Adagrad(LEARNING_RATE)
    step = _step(strategy, rows, weights, optimizer)
    speeds = {}
    for size in sizes:
        per_worker = coordinator.create_per_worker_dataset(lambda size=size: _minibatches(records, size))
        speeds[str(size)] = _examples_per_s(coordinator, step, iter(per_worker), size)
    return speeds


def _minibatches(path: str, size: int) -> Any:
    dataset = tf.data.FixedLengthRecordDataset(path, RECORD_BYTES).cache()
    dataset = dataset.batch(size, drop_remainder=True).map(_decode).repeat().prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return dataset.with_options(options)


def _decode(records: Any) -> Any:
    words = tf.io.decode_raw(records, tf.int32)
    last_id = IDS * WORDS_PER_ID
    ids = tf.bitcast(tf.reshape(words[:, :last_id], [-1, IDS, WORDS_PER_ID]), tf.int64)
    floats = tf.ensure_shape(tf.bitcast(words[:, last_id:], tf.float32), [None, NUMBERS + 1])
    return ids, floats[:, :NUMBERS], floats[:, NUMBERS:]


def _weights() -> list[Any]:
    widths = (IDS * DIM + NUMBERS, *HIDDEN, 1)
    weights = []
    for inputs, outputs in itertools.pairwise(widths):
        weights.append(tf.Variable(tf.random.normal((inputs, outputs), stddev=0.05)))
        weights.append(tf.Variable(tf.zeros(outputs)))
    return weights


def _step(strategy: Any, rows: Any, weights: list[Any], optimizer: Any) -> Any:
    def train(ids: Any, numbers: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            looked_up = tf.nn.embedding_lookup(rows, tf.reshape(ids, [-1]))
            x = tf.concat([tf.reshape(looked_up, (-1, IDS * DIM)), numbers], 1)
            for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
                x = tf.nn.relu(tf.matmul(x, kernel) + bias)
            logits = tf.matmul(x, weights[-2]) + weights[-1]
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
        variables = [rows, *weights]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    return tf.function(lambda minibatches: strategy.run(train, args=next(minibatches)))


def _examples_per_s(coordinator: Any, step: Any, minibatches: Any, size: int) -> float:
    _run_steps(coordinator, step, minibatches, WARM_UP_STEPS)
    began_s, steps = time.perf_counter(), 0
    while time.perf_counter() - began_s < MEASURED_S:
        _run_steps(coordinator, step, minibatches, STEPS_IN_FLIGHT)
        steps += STEPS_IN_FLIGHT
    return steps * size / (time.perf_counter() - began_s)


def _run_steps(coordinator: Any, step: Any, minibatches: Any, count: int) -> None:
    for _ in range(count):
        coordinator.schedule(step, args=(minibatches,))
    coordinator.join()


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main(sys.argv[1], sys.argv[2:5], [int(size) for size in sys.argv[5:]])
