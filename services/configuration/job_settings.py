"""What the cores of a running job read of its configuration.

A job's configuration travels and is journalled as a record, flag by flag.  A core makes this of it once, and
reads nothing else of it: a flag that is misspelled, or that has another type, is an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from edlz.services.configuration.job_config import JobConfig, Scalar

__all__ = ["JobSettings"]


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The flags that decide what master, partitions and workers do; each is explained by its help.

    There are no defaults here: those of the flags hold for what a record leaves out.
    """

    # of training
    max_step: int
    stop_on_nan: bool
    skip_bad_tasks: bool
    get_model_steps: int
    prefetch_rows: bool
    lr_staleness_modulation: bool
    sync_version_tolerance: int

    # of what is kept
    evaluation_steps: int
    checkpoint_dir: str
    checkpoint_steps: int
    recovery_snapshot_secs: float
    export_from_checkpoint: bool
    private_job_dir: bool

    # of what comes out
    output: str
    output_format: str
    unknown_ids: str
    prediction_output: str
    statistics_output: str

    # of the processes
    num_ps_pods: int
    worker_threads: int
    distribution_strategy: str

    # of the data, which tells what the job is for
    training_data: str
    validation_data: str
    prediction_data: str
    analysis_data: str

    @classmethod
    def of(cls, record: Mapping[str, Scalar]) -> "JobSettings":
        """Read a job's record (`messages.Job.config`).

        Raises
        ------
        RemoteProtocolError
            If a value is of another type than its flag.
        """
        known = {name: record[name] for name in cls.__dataclass_fields__ if name in record}
        config = JobConfig.from_record(known)
        return cls(
            max_step=config.max_step,
            stop_on_nan=config.stop_on_nan,
            skip_bad_tasks=config.skip_bad_tasks,
            get_model_steps=config.get_model_steps,
            prefetch_rows=config.prefetch_rows,
            lr_staleness_modulation=config.lr_staleness_modulation,
            sync_version_tolerance=config.sync_version_tolerance,
            evaluation_steps=config.evaluation_steps,
            checkpoint_dir=config.checkpoint_dir,
            checkpoint_steps=config.checkpoint_steps,
            recovery_snapshot_secs=config.recovery_snapshot_secs,
            export_from_checkpoint=config.export_from_checkpoint,
            private_job_dir=config.private_job_dir,
            output=config.output,
            output_format=config.output_format,
            unknown_ids=config.unknown_ids,
            prediction_output=config.prediction_output,
            statistics_output=config.statistics_output,
            num_ps_pods=config.num_ps_pods,
            worker_threads=config.worker_threads,
            distribution_strategy=config.distribution_strategy,
            training_data=config.training_data,
            validation_data=config.validation_data,
            prediction_data=config.prediction_data,
            analysis_data=config.analysis_data,
        )

    @property
    def hosts_partition(self) -> bool:
        """Whether the job's one partition lives in the master's process."""
        return self.num_ps_pods == 0 and not self.is_allreduce

    @property
    def can_checkpoint(self) -> bool:
        """Whether whoever writes parts of a checkpoint and the master may see the same folder of them."""
        return bool(self.checkpoint_dir) or self.hosts_partition or not self.private_job_dir

    @cached_property
    def is_allreduce(self) -> bool:
        """Whether workers hold the model themselves while it is trained, without parameter servers."""
        return JobConfig(
            distribution_strategy=self.distribution_strategy,
            training_data=self.training_data,
            validation_data=self.validation_data,
            prediction_data=self.prediction_data,
            analysis_data=self.analysis_data,
        ).is_allreduce
