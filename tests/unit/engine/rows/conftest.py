"""Trainers of models with embedding tables."""

import dataclasses

import pytest

from edlz.services.worker.engine.keras_engine import KerasEngine
from tests.table_jobs import job, write_job
from tests.unit.engine.rows.two_tables import TWO_TABLES


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One model on 1 and on 3 partitions: trainers have no memory that tests could see."""
    folder = tmp_path_factory.mktemp("shared") / "job"
    write_job(folder, TWO_TABLES, {})
    trainers = [KerasEngine(*job(folder, evaluation=True), partitions) for partitions in (1, 3)]
    yield [(trainer, trainer.build()) for trainer in trainers]
    for trainer in trainers:
        trainer.close()


@pytest.fixture
def make(tmp_path):
    """make(source) -> (trainer, what it built); closed at the end."""
    made = []

    def build(source, *, change=None, partitions=1, **options):
        folder = tmp_path / f"job{len(made)}"
        write_job(folder, source, change or {})
        config, plan = job(folder)
        trainer = KerasEngine(dataclasses.replace(config, **options), plan, partitions)
        made.append(trainer)
        return trainer, trainer.build()

    yield build
    for trainer in made:
        trainer.close()
