"""Errors of the trainer by kind: of a task, of the user's code, of whoever drives it."""

import pytest

from edlz.services.errors import LocalProtocolError
from edlz.services.worker.engine.keras_engine import KerasEngine, TaskError, UserCodeError
from tests.unit.engine.trainer_jobs import MODEL, job, task_of, write_job

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")


def test_a_bad_record_fails_the_task_and_the_trainer_goes_on(make):
    trainer, _ = make(change={12: b"1,2,oops,4"})
    bad, good = task_of(trainer, "part-0", 10), task_of(trainer, "part-0", 0)
    with pytest.raises(TaskError, match="oops") as error:
        list(map(trainer.compute, [bad] * 3, range(3)))
    assert error.value.task == bad
    assert "model.py" in error.value.where
    assert trainer.compute(good, 0).gradient is not None


def test_an_error_in_the_step_names_the_function_and_the_shapes(make):
    trainer, _ = make(change=dict.fromkeys(range(10), b"1,2,3,5000"))
    bad = task_of(trainer, "part-0", 0)
    with pytest.raises(TaskError) as error:
        trainer.compute(bad, 1)
    assert error.value.index == 1
    assert "loss(): labels (4,) float32, predictions (4, 1) float32" in error.value.error
    assert error.value.where.endswith("in loss")
    assert trainer.compute(task_of(trainer, "part-0", 10), 0).records == 4


def test_a_bad_record_fails_its_evaluation_task(make):
    trainer, _ = make(change={12: b"1,2,oops,4"}, evaluation=True)
    ranges = trainer._plan.evaluation_ranges
    with pytest.raises(TaskError, match="oops"):
        trainer.evaluate(1, ranges[1])
    assert trainer.evaluate(0, ranges[0])[0] == 10


def test_a_file_that_is_gone_fails_the_task(make, tmp_path):
    trainer, _ = make()
    tasks = [task_of(trainer, *place) for place in (("part-0", 0), ("part-1", 0))]
    open_files = trainer._reader._source._readers
    task = next(task for task in tasks if trainer._plan.task_range(task).name not in open_files)
    for path in (tmp_path / "job0" / "data").iterdir():
        path.unlink()
    with pytest.raises(TaskError, match=r"part-. cannot be read: No such file"):
        trainer.compute(task, 0)


def test_what_to_do_about_a_file_comes_with_the_failed_task(make, tmp_path):
    trainer, _ = make()
    open_files = trainer._reader._source._readers
    tasks = [task_of(trainer, *place) for place in (("part-0", 0), ("part-1", 0))]
    task = next(task for task in tasks if trainer._plan.task_range(task).name not in open_files)
    for path in (tmp_path / "job0" / "data").iterdir():
        path.write_bytes(b"not at all")
    with pytest.raises(TaskError, match="is not RecordIO") as error:
        trainer.compute(task, 0)
    assert "--data_reader_params" in error.value.record("training").help


def test_a_loss_that_cannot_work_is_found_when_building(make):
    source = MODEL.replace("predictions[:, 0] - labels", "predictions - tf.zeros([7])")
    with pytest.raises(UserCodeError, match=r"loss\(\) raised .* on the first minibatch: labels \(4,\)"):
        make(source.replace("L.Dense(1)", "L.Dense(3)"))


def test_nothing_works_before_it_is_built(tmp_path):
    write_job(tmp_path / "job", MODEL, {})
    trainer = KerasEngine(*job(tmp_path / "job"))
    trainer.drop(0)
    with pytest.raises(LocalProtocolError, match="not built"):
        trainer.compute(0, 0)
    trainer.close()
