"""What a member of an all-reduce group begins with, and the models that no group can train, or not well."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from edlz.services.errors import ConfigError, ModelError
from edlz.services.parameters.beginning import begun_from, difference
from edlz.services.parameters.store import Store, initial_digest
from edlz.services.protocol.messages import Initialise, Job
from edlz.services.storage.checkpoint_reading import read_partition
from edlz.services.worker.core.computation import Built

__all__ = ["base_of_members", "refuse_for_members", "warn_of_large_embeddings", "without_values"]

LARGE_BYTES = 256 << 20

logger = logging.getLogger(__name__)

_HELP = "--distribution_strategy=ParameterServerStrategy"


def refuse_for_members(built: Built) -> None:
    """Refuse a model that needs parameter servers.

    Raises
    ------
    ModelError
        If it has embedding tables.
    """
    if built.tables:
        raise ModelError(
            f"{built.tables[0].path} is an edlz.api.Embedding: rows of unbounded tables live on parameter servers",
            _HELP,
        )


def warn_of_large_embeddings(built: Built) -> None:
    """Say what a step sends for an Embedding of Keras whose rows are all in the model, if that is much."""
    for variable in built.layout.dense.variables:
        size_bytes = 4 * variable.size
        if variable.path.endswith("/embeddings") and size_bytes > LARGE_BYTES:
            logger.warning(
                "%s stays in the model: each worker holds all of its %s rows, and sends and receives %s MiB or more in each"
                " step, used or not; with --distribution_strategy=ParameterServerStrategy only a minibatch's rows are sent",
                variable.path,
                f"{variable.shape[0]:,}",
                f"{size_bytes >> 20:,}",
            )


def without_values(built: Built) -> Built:
    """Return what is to be known of a model whose values are the replica's: they change with it."""
    nothing = np.empty(0, np.float32)
    return replace(built, dense=nothing, state=nothing, counters=np.empty(0, np.int64))


def base_of_members(built: Built, job: Job) -> Store:
    """Return the whole state before training: the model's, or the checkpoint that the job begins from.

    The model's values become the state's own, without a copy.

    Raises
    ------
    ConfigError
        If the checkpoint is of another model, or has rows that no group holds.
    DataError
        If it cannot be read.
    """
    plan, vectors = job.plan, (built.dense, built.state, built.counters)
    if not job.begins_from:
        initial = Store.initial(
            plan_hash=plan.hash,
            task_count=plan.task_count,
            partition=0,
            partitions=1,
            layout=built.layout,
            optimizer=built.optimizer,
            dense=built.dense,
            state=built.state,
            counters=built.counters,
        )
        return Store(initial, plan.seed, adopts=True)
    state = begun_from(read_partition(Path(job.begins_from), 0, 1), plan)
    if state.tables:
        path = state.tables[0].path
        state.close()
        raise ConfigError(
            f"the checkpoint has rows of the embedding table {path}, and rows live on parameter servers",
            _HELP,
        )
    ours = Initialise(
        run=job.run,
        plan_hash=plan.hash,
        digest=initial_digest(plan.hash, built.layout, built.optimizer, (), *vectors),
        layout=built.layout,
        optimizer=built.optimizer,
        dense=None,
        state=None,
        counters=None,
    )
    problem = difference(state, ours)
    if problem is not None:
        state.close()
        raise ConfigError(problem.message, problem.help)
    return Store(state, plan.seed, adopts=True)
