"""Which processes should run, and which losses end the job."""

from edlz.services.master.fleet import Fleet
from edlz.services.messages import ProcessExit

KILLED = "killed by signal 9 (SIGKILL)"


def exit_of(name: str, reason: str = KILLED) -> ProcessExit:
    return ProcessExit(name=name, code=None, signal=9, reason=reason)


def test_everything_runs_until_the_job_is_over() -> None:
    fleet = Fleet(workers=2, servers=1)
    assert fleet.desired(is_over=False) == ("ps-0", "worker-0", "worker-1")
    assert fleet.desired(is_over=True) == ()


def test_a_lost_worker_is_no_failure_while_another_is_there() -> None:
    fleet = Fleet(workers=2, servers=1)
    loss = fleet.on_exit(exit_of("worker-0"))
    assert loss is not None
    assert loss.reason == KILLED
    assert loss.failure is None
    assert fleet.desired(is_over=False) == ("ps-0", "worker-1")
    assert fleet.on_exit(exit_of("worker-0")) is None


def test_the_last_workers_loss_ends_the_job_with_all_reasons() -> None:
    fleet = Fleet(workers=2, servers=0)
    fleet.on_exit(exit_of("worker-0"))
    loss = fleet.on_exit(exit_of("worker-1", "exit code 1"))
    assert loss is not None
    assert loss.failure is not None
    assert "worker-0 killed by signal 9 (SIGKILL); worker-1 exit code 1" in loss.failure.text


def test_a_lost_parameter_server_ends_the_job() -> None:
    loss = Fleet(workers=1, servers=2).on_exit(exit_of("ps-1"))
    assert loss is not None
    assert loss.failure is not None
    assert "ps-1 was lost" in loss.failure.text


def test_strangers_do_not_count() -> None:
    assert Fleet(workers=1, servers=1).on_exit(exit_of("worker-7")) is None
