"""The configuration of a job: a value for every flag, and what follows from them.

The command line, the arguments of the services, environment variables, the config file, help and
completion all come from its fields, which `declared_flags` declares.  Reading values from those places
is `arguments`' affair, checking how they fit together is `checks`'.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from edlz.services.configuration.declared_flags import ANALYZED_RECORDS, DeclaredFlags
from edlz.services.configuration.endpoints import listening_endpoint, reachable_endpoint
from edlz.services.configuration.flags import COMMANDS, DATA_FLAGS, KINDS, Flag, Purpose, Reader
from edlz.services.configuration.model_params import parse_model_params
from edlz.services.errors import RemoteProtocolError

__all__ = [
    "ALLREDUCE",
    "NO_LIMIT",
    "JobConfig",
    "Scalar",
    "edlz_home",
    "flags",
    "flags_by_spelling",
    "legal_job_name",
]

Scalar = str | int | float | bool | None
ConfigRecord = dict[str, Scalar]
_Self = TypeVar("_Self", bound="JobConfig")

MAX_JOB_NAME = 40  # a pod's name adds a prefix and a role, and may have 63 letters
MAX_KEPT_JOB_NAME = 50  # of a job on this machine: it was the limit once
ALLREDUCE = "AllreduceStrategy"
NO_LIMIT = 2**62  # bytes: with no parameter servers every Embedding of Keras stays in the model
PS_PORT = 2222  # of partition 0 by hand; partition i listens on PS_PORT + i


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobConfig(DeclaredFlags):
    """All settings of a job, or of one of its services.

    A field that is left out, or None, and follows from others (job_name, records_per_task, grads_to_wait,
    worker_threads) is worked out when the record is made, so a reader finds a value in it.

    Attributes
    ----------
    given : frozenset of str
        The flags that somebody set: by flag, environment or file.  Takes no part in comparison.
    """

    given: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        if self.has_no_tables and "embedding_threshold_bytes" not in self.given:
            object.__setattr__(self, "embedding_threshold_bytes", NO_LIMIT)
        if self.is_allreduce and "num_ps_pods" not in self.given:
            object.__setattr__(self, "num_ps_pods", 0)
        self._derive("job_name", _job_name_of(self))
        per_task = self.minibatch_size * self.num_minibatches_per_task
        self._derive("records_per_task", ANALYZED_RECORDS if self.purpose == "analysis" else per_task)
        if self.purpose == "analysis":  # nothing is trained, so the one partition that every job has is empty
            object.__setattr__(self, "num_ps_pods", 0)
            if not (self.statistics_output or self.is_for_cluster):
                folder = self.job_directory.absolute() / "statistics"
                object.__setattr__(self, "statistics_output", str(folder))
        self._derive("grads_to_wait", 1 if self.use_async else max(1, self.num_workers))
        self._derive("worker_threads", _cores())
        self._derive("port", PS_PORT + self.ps_id)

    # ------------------------------------------------------------ what readers ask for

    @property
    def purpose(self) -> Purpose:
        """What the job is for: its data tells."""
        if self.analysis_data:
            return "analysis"
        if self.prediction_data:
            return "prediction"
        return "evaluation" if self.validation_data and not self.training_data else "training"

    @property
    def data(self) -> str:
        """The data that the job works on."""
        return str(getattr(self, DATA_FLAGS[self.purpose]))

    @property
    def task_size_flag(self) -> str:
        """The flag that says how large a task is: records_per_task wins where it was given, and an analysis has no other."""
        is_derived = self.records_per_task == self.minibatch_size * self.num_minibatches_per_task
        return "num_minibatches_per_task" if is_derived and self.purpose != "analysis" else "records_per_task"

    @property
    def is_sync(self) -> bool:
        """Whether gradients of one step meet in it: not with a tolerance, which lets older ones in."""
        return not self.use_async and not self.sync_version_tolerance

    @property
    def is_allreduce(self) -> bool:
        """Whether workers hold the model themselves while it is trained, without parameter servers."""
        return self.distribution_strategy == ALLREDUCE and self.purpose == "training"

    @property
    def is_for_cluster(self) -> bool:
        """Whether the job is for a cluster: some image is named, or one to build on, or where to push it."""
        return bool(self.image_name or self.image_base or self.docker_image_prefix)

    @property
    def has_no_tables(self) -> bool:
        """Whether the model is one that workers hold whole, while it is trained and later."""
        return self.distribution_strategy == ALLREDUCE

    @property
    def model_arguments(self) -> dict[str, Any]:
        """The keyword arguments that `--model_params` holds.

        Raises
        ------
        ConfigError
            If a part is not `name=literal`.
        """
        return parse_model_params(self.model_params)

    @property
    def listen_endpoint(self) -> str:
        """Where this service listens, as ZeroMQ writes it: on loopback, if nothing else is said."""
        return self.endpoint or listening_endpoint(self.host, self.port)

    def reachable_at(self, bound: str) -> str:
        """Return what others are told of the place where this service is bound.

        Raises
        ------
        ConfigError
            If it listens on all addresses, and `--host` names none of them.
        """
        return reachable_endpoint(bound, self.host)

    @property
    def master_endpoint(self) -> str:
        """Where the master listens, as ZeroMQ writes it."""
        return self.master_addr if "://" in self.master_addr else f"tcp://{self.master_addr}"

    @property
    def job_directory(self) -> Path:
        """The folder of the job's files: `--job_dir`, or the job's place in EDLZ_HOME."""
        return Path(self.job_dir) if self.job_dir else edlz_home() / "jobs" / self.job_name

    @property
    def checkpoint_directory(self) -> Path:
        """The folder of the job's checkpoints: `--checkpoint_dir`, or a place among the job's files."""
        return Path(self.checkpoint_dir) if self.checkpoint_dir else self.job_directory / "checkpoints"

    # ------------------------------------------------------------ other forms

    def to_record(self) -> ConfigRecord:
        """Return the settings as they travel in `messages.Job.config`."""
        return {about.name: getattr(self, about.name) for about in flags()}

    def model_settings(self) -> ConfigRecord:
        """Return the settings that say what is trained and how: what builds the model again."""
        return {
            about.name: getattr(self, about.name) for about in flags() if about.group in ("model", "training")
        }

    @classmethod
    def from_record(cls: type[_Self], record: Mapping[str, Scalar]) -> _Self:
        """Make a configuration from what `to_record` gave; keys of a later version are left out.

        Raises
        ------
        RemoteProtocolError
            If a value is of another type than its flag.
        """
        known: dict[str, Any] = {}
        for name, about in _flags_by_name().items():
            if name in record:
                known[name] = _checked(about, record[name])
        return cls(**known)

    def joined_with(self: _Self, record: Mapping[str, Scalar]) -> _Self:
        """Return the job's settings, with this service's own where it was given some by hand.

        A worker started with `--model_file=…` takes its own file, and everything else from the job.
        """
        own = {name: getattr(self, name) for name in self.given if name in _flags_by_name()}
        for about in flags():
            if about.group == "service":
                own[about.name] = getattr(self, about.name)
        return type(self).from_record({**record, **own})

    def to_arguments(self, reader: Reader) -> list[str]:
        """Return the arguments that start a service with these settings: those that are not its default."""
        values = [(about, getattr(self, about.name)) for about in flags() if reader in about.readers]
        return [
            f"--{about.name}={_as_text(value)}"
            for about, value in values
            if value != about.default_for(reader) and value != "" and about.name != "config"
        ]

    def to_yaml(self) -> str:
        """Return the settings as a config file that repeats the job, on this machine or another."""
        left_out = {"config", "fresh", "job_dir", "progress"}
        command = COMMANDS[self.purpose]
        lines = [
            f"{about.name}: {json.dumps(getattr(self, about.name), ensure_ascii=False)}"
            for about in flags()
            if command in about.readers and about.name not in left_out and getattr(self, about.name) != ""
        ]
        return "\n".join(lines) + "\n"

    def _derive(self, name: str, value: Scalar) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)


@cache
def flags() -> tuple[Flag, ...]:
    """Return every flag, in the order of the help pages."""
    found = []
    for field in dataclasses.fields(JobConfig):
        about = field.metadata.get("flag")
        if isinstance(about, Flag):
            found.append(dataclasses.replace(about, name=field.name, kind=KINDS[field.type]))
    return tuple(found)


@cache
def flags_by_spelling() -> Mapping[str, Flag]:
    """Return the flags by name and by each older spelling."""
    return {spelling: about for about in flags() for spelling in about.spellings}


def edlz_home() -> Path:
    """Return the folder of everything that edlz keeps for this user: EDLZ_HOME, or ~/.edlz."""
    return Path(os.environ.get("EDLZ_HOME") or Path.home() / ".edlz").absolute()


def legal_job_name(text: str, most: int = MAX_JOB_NAME) -> str:
    """Return the job name nearest to a text: letters a-z, digits and -, not too many."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].rstrip("-")
    return name or "job"


@cache
def _flags_by_name() -> Mapping[str, Flag]:
    return {about.name: about for about in flags()}


def _job_name_of(config: JobConfig) -> str:
    """Return the name of a job that has none: another one than its training has, whose files it may read."""
    purpose = config.purpose
    parts = Path(config.model_def).name.removesuffix(".py").split(".")
    model = parts[-2] if len(parts) > 1 else parts[-1]
    if config.model_file:
        model = Path(config.model_file).stem
    if purpose == "analysis":
        model = Path(config.analysis_data.partition(",")[0]).name.partition(".")[0]
    suffix = "" if purpose == "training" else f"-{COMMANDS[purpose]}"
    return legal_job_name(legal_job_name(model)[: MAX_JOB_NAME - len(suffix)] + suffix)


def _cores() -> int:
    """The cores that this process may use: a container's share, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _checked(about: Flag, value: Scalar) -> Scalar:
    wanted: Any = {"text": str, "whole number": int, "number": (int, float), "yes or no": bool}[about.kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and about.kind != "yes or no"):
        raise RemoteProtocolError(f"the job's {about.name} came as {value!r}, not as a {about.kind}")
    return float(value) if about.kind == "number" and value is not None else value


def _as_text(value: Scalar) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
