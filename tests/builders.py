"""A plan, a job and its settings, of which a test names what it is about; the rest is as small as it can be."""

from pathlib import Path
from typing import Any

from edlz.api.recordio import Writer
from edlz.services.configuration.job_config import JobConfig
from edlz.services.protocol.messages import Job, Recount
from edlz.services.protocol.plan import Plan, Shard

__all__ = ["job", "plan", "settings", "settings_in"]


def plan(records: int = 0, evaluated: int = 0, **fields: Any) -> Plan:
    """Return a plan: synchronous, one epoch, and of each record a task, unless the fields say otherwise.

    Parameters
    ----------
    records, evaluated : int
        So many are trained on, and evaluated, each in one shard; 0: in none.
    **fields
        Of the plan.
    """
    about = {
        "mode": "sync",
        "seed": 0,
        "shards": _shards("data", records),
        "records_per_task": 1,
        "minibatch_size": 1,
        "epochs": 1,
        "slots": 1,
        "evaluation_shards": _shards("test", evaluated),
    }
    return Plan(**{**about, **fields})


def job(about: Plan | None = None, **fields: Any) -> Job:
    """Return a job on this plan, by default one without records; of one partition, with no settings."""
    given = {"name": "j", "run": "r", "config": {}, "plan": about or plan(), "partitions": 1}
    return Job(**{**given, **fields})


def settings(**fields: Any) -> JobConfig:
    """Return the settings of a job whose model and data are looked at by nobody."""
    return JobConfig(**{"job_name": "j", "model_def": "a.b", "training_data": "x", **fields})


def settings_in(folder: Path, records: int = 1, **fields: Any) -> JobConfig:
    """Return the settings of a job on so many records, with all of its files, and its master's socket, in a folder."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    with Writer(data / "part-0") as writer:
        for _ in range(records):
            writer.write(b"x")
    places = {
        "training_data": str(data),
        "job_dir": str(folder / "job"),
        "endpoint": f"ipc://{folder}/m",
        "num_ps_pods": 1,
    }
    return settings(**{**places, **fields})


def _shards(name: str, count: int) -> tuple[Shard, ...]:
    return (Shard(name=name, first=0, count=count),) if count else ()


def recount(minibatches: int) -> Recount:
    """Return what a partition says that has applied so many minibatches, each once."""
    return Recount(expected=minibatches, applied=minibatches)
