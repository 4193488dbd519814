"""Analyses of data in this process: what workers and a master do, without them."""

from pathlib import Path
from typing import Any

from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.planning import make_plan
from edlz.services.statistics.figures import Statistics, encode, merged
from edlz.services.statistics.parts import TaskStatistics, write_statistics
from edlz.services.worker.analysis_engine import AnalysisEngine

__all__ = ["analyzed", "encoded", "task_statistics"]


def task_statistics(data: Path, **settings: Any) -> list[TaskStatistics]:
    """Return what each task of an analysis gives."""
    config = JobConfig(analysis_data=str(data), **settings)
    plan = make_plan(config)
    assert (plan.analyzes, plan.is_training, config.num_ps_pods) == (True, False, 0)
    engine, found = AnalysisEngine(config, plan), []
    try:
        for task, records in enumerate(plan.evaluation_ranges):
            statistics = engine.predict(task, records).table
            assert isinstance(statistics, TaskStatistics)
            found.append(statistics)
    finally:
        engine.close()
    return found


def analyzed(folder: Path, data: Path, **settings: Any) -> Statistics:
    """Return the figures of some data; the tasks' files lie in a folder."""
    paths = []
    for task, statistics in enumerate(task_statistics(data, **settings)):
        paths.append(folder / f"part-{task}")
        write_statistics(paths[-1], statistics)
    return merged(paths, JobConfig.vocabulary_size)


def encoded(folder: Path, data: Path, **settings: Any) -> bytes:
    """Return `statistics.json`."""
    return encode(analyzed(folder, data, **settings))
