"""What is known of a flag besides its value: help, group, spellings, limits, and who reads it.

`declared_flags` declares the flags with `flag()`; this module owns their description and the table of
flags that edlz knows of but does not have yet.  Values, and where they come from, are `arguments`' affair.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

__all__ = [
    "COMMANDS",
    "DATA_FLAGS",
    "FIRST_WORDS",
    "GROUPS",
    "LATER_FLAGS",
    "PURPOSES",
    "READERS",
    "Flag",
    "Purpose",
    "Reader",
    "flag",
]

Reader = Literal["train", "evaluate", "predict", "analyze", "master", "worker", "ps"]
Purpose = Literal["training", "evaluation", "prediction", "analysis"]
Kind = Literal["text", "whole number", "number", "yes or no"]

READERS: dict[Reader, str] = {
    "train": "edlz train",
    "evaluate": "edlz evaluate",
    "predict": "edlz predict",
    "analyze": "edlz analyze",
    "master": "python -m edlz.services.master",
    "worker": "python -m edlz.services.worker",
    "ps": "python -m edlz.services.ps",
}

COMMANDS: dict[Purpose, Reader] = {
    "training": "train",
    "evaluation": "evaluate",
    "prediction": "predict",
    "analysis": "analyze",
}
"""The commands that begin a job, by what it is for."""

DATA_FLAGS: dict[Purpose, str] = {
    "training": "training_data",
    "evaluation": "validation_data",
    "prediction": "prediction_data",
    "analysis": "analysis_data",
}
"""The data that a job must have."""

FIRST_WORDS: dict[Reader, str] = {"analyze": "analysis_data"}
"""Flags whose value may stand alone, before or among the others."""

GROUPS: dict[str, str] = {
    "model": "Model and data",
    "training": "Training",
    "workers": "Workers",
    "results": "Results",
    "kubernetes": "Kubernetes",
    "images": "Images",
    "run": "This run",
    "service": "This service",
}

KINDS: dict[object, Kind] = {str: "text", int: "whole number", float: "number", bool: "yes or no"}


PURPOSES: dict[Reader, Purpose] = {command: purpose for purpose, command in COMMANDS.items()}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """The description of one flag.

    Attributes
    ----------
    defaults : mapping of Reader to object
        The default where a reader has another one than the dataclass.
    helps : mapping of Reader to str
        The help where a reader means something else by it.
    default_text : str
        What help shows in brackets, where the value itself says too little.
    default_texts : mapping of Reader to str
        The same where it is another one for a reader.
    later : mapping of str to str
        Choices that are known but not in this version, with the reason.
    bare : str
        The choice that the flag means where it stands alone.
    common : bool
        On the short help page.
    hidden : on no help page
    """

    name: str = ""
    kind: Kind = "text"
    default: Any = None
    metavar: str
    help: str
    group: str
    readers: frozenset[Reader]
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    later: Mapping[str, str] = dataclasses.field(default_factory=dict)
    minimum: float | None = None
    maximum: float | None = None
    defaults: Mapping[Reader, Any] = dataclasses.field(default_factory=dict)
    helps: Mapping[Reader, str] = dataclasses.field(default_factory=dict)
    default_text: str = ""
    default_texts: Mapping[Reader, str] = dataclasses.field(default_factory=dict)
    example: str = ""
    bare: str = ""
    required_by: frozenset[Reader] = frozenset()
    common: bool = False
    hidden: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    def default_for(self, reader: Reader) -> Any:
        return self.defaults.get(reader, self.default)

    def help_for(self, reader: Reader) -> str:
        return self.helps.get(reader, self.help)


def flag(default: Any, metavar: str, help: str, readers: str, *, group: str, **more: Any) -> Any:  # noqa: A002
    """Declare a field of the configuration as a flag.

    Parameters
    ----------
    default : object
        The default; None for a value that follows from other flags or from this machine.
    metavar : str
        What stands for the value in help, in capitals.
    help : str, at most 44 characters
    readers : str
        Names of READERS, separated by blanks.
    group : a key of GROUPS
    more : further attributes of Flag; `compare`: whether two configurations that differ in it are two
    """
    readers_set, compare = frozenset(readers.split()), bool(more.pop("compare", True))
    more["required_by"] = frozenset(str(more.get("required_by", "")).split())
    about = Flag(default=default, metavar=metavar, help=help, group=group, readers=readers_set, **more)  # type: ignore[arg-type]
    return dataclasses.field(default=default, compare=compare, metadata={"flag": about})


_OLD_RESOURCES = "a flag for each resource (use --worker_resource_request=cpu=1,memory=4096Mi)"
_OLD_VOLUME = "a flag for each part of a volume (use --volume=claim_name=…,mount_path=…)"
_POD_WATCH = "a job that does not watch its pods"
_CALLBACKS = "callbacks"
_READERS = "decoding files by a module (use custom_data_reader of the model)"
_TIMED = "evaluation by time (use --evaluation_steps)"
_PARTS = "running a part of edlz or another framework"

_NAMES_BY_REASON: dict[str, str] = {
    _OLD_RESOURCES: """master_cpu_request master_cpu_limit master_memory_request master_memory_limit
        worker_cpu_request worker_cpu_limit worker_memory_request worker_memory_limit""",
    _OLD_VOLUME: "volume_name mount_path",
    _POD_WATCH: "aux_params relaunch_timeout_worker",
    _CALLBACKS: "callbacks learning_rate_scheduler",
    _READERS: "codec_file",
    _TIMED: "evaluation_start_delay_secs evaluation_throttle_secs",
    _PARTS: "job_command need_tf_config need_task_manager need_pod_manager need_elasticdl_job_service use_go_ps",
    "giving up at the first error (a task is tried three times)": "task_fault_tolerance",
}

LATER_FLAGS: dict[str, str] = {
    name: reason for reason, names in _NAMES_BY_REASON.items() for name in names.split()
}
"""Flags that belong to later work, each with what it would need: refused, never silently accepted."""
