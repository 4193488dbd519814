"""Trainers of the small job: one that tests share, and new ones."""

import pytest

from edlz.services.worker.engine.keras_engine import KerasEngine
from tests.unit.engine.trainer_jobs import MODEL, job, write_job


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A trainer, and what it built, that many tests use: it has no memory that they could see."""
    folder = tmp_path_factory.mktemp("shared") / "job"
    write_job(folder, MODEL, {})
    trainer = KerasEngine(*job(folder, evaluation=True))
    yield trainer, trainer.build()
    trainer.close()


@pytest.fixture
def make(tmp_path):
    """make(source, records) -> (trainer, what it built); closed at the end."""
    made = []

    def build(source=MODEL, *, change=(), mode="sync", evaluation=False, slots=2):
        folder = tmp_path / f"job{len(made)}"
        write_job(folder, source, dict(change))
        trainer = KerasEngine(*job(folder, mode, evaluation, slots))
        made.append(trainer)
        return trainer, trainer.build()

    yield build
    for trainer in made:
        trainer.close()
