"""The configuration of a job: every flag, once.

The command line, the arguments of the services, environment variables, the config file, help and
completion all come from the fields of `JobConfig`.  Reading values from those places is `arguments`'
affair, checking how they fit together is `checks`'.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from edlz.services.configuration.endpoints import listening_endpoint, reachable_endpoint
from edlz.services.configuration.flags import COMMANDS, DATA_FLAGS, KINDS, Flag, Purpose, Reader, flag
from edlz.services.configuration.job_size import MOST_SERVERS, MOST_WORKERS
from edlz.services.configuration.model_params import parse_model_params
from edlz.services.errors import RemoteProtocolError

__all__ = ["JobConfig", "Scalar", "edlz_home", "flags", "flags_by_spelling", "legal_job_name"]

Scalar = str | int | float | bool | None
ConfigRecord = dict[str, Scalar]
_Self = TypeVar("_Self", bound="JobConfig")

MOST_THREADS = 1024  # of one process
MAX_JOB_NAME = 40  # a pod's name adds a prefix and a role, and may have 63 letters
MAX_KEPT_JOB_NAME = 50  # of a job on this machine: it was the limit once
PS_PORT = 2222  # of partition 0 by hand; partition i listens on PS_PORT + i

_COMMANDS = "train evaluate predict"
_JOB = f"{_COMMANDS} master"
_TRAINING_JOB = "train master"
_model = partial(flag, group="model", readers=f"{_JOB} worker")
_data = partial(flag, group="model")
_computing = partial(flag, group="training", readers=_JOB)
_training = partial(flag, group="training", readers=_TRAINING_JOB)
_workers = partial(flag, group="workers", readers=_JOB)
_results = partial(flag, group="results", readers=_TRAINING_JOB)
_cluster = partial(flag, group="kubernetes", readers=_JOB)
_images = partial(flag, group="images", readers=_COMMANDS)
_run = partial(flag, group="run", readers=f"{_JOB} worker ps")
_service = partial(flag, group="service", common=True)

_MNIST = "mnist.mnist_functional_api.custom_model"
_VALIDATION_ALIASES = ("validation_data_dir", "evaluation_data", "evaluation_data_dir")
_INIT_ALIASES = ("init_from_checkpoint", "checkpoint_filename_for_init")
_CODECS = ("bytes", "tf_example")
_PREDICTIONS = ("jsonl", "csv", "recordio", "parquet")
_PROGRESS = ("auto", "live", "plain", "quiet", "json")
_PULL = ("Always", "IfNotPresent", "Never")
_DRY = ("client", "server")
_SECURITY = ("curve", "none")
_RECORDS = "RecordIO file, or a directory of them"
_CHECKPOINT = "checkpoint folder, or a version-<V>"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_STRATEGIES = ("Local", "ParameterServerStrategy", "AllreduceStrategy")
_LATER = {"Local": "training in one process", "AllreduceStrategy": "training without parameter servers"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobConfig:
    """All settings of a job, or of one of its services.

    A field that is left out, or None, and follows from others (job_name, records_per_task, grads_to_wait,
    worker_threads) is worked out when the record is made, so a reader finds a value in it.

    Attributes
    ----------
    given : frozenset of str
        The flags that somebody set: by flag, environment or file.  Takes no part in comparison.
    """

    # ------------------------------------------------------------ model and data
    model_def: str = _model(
        "", "NAME", "module.symbol in the zoo, or a directory", common=True, example=_MNIST
    )
    training_data: str = _data(
        "",
        "PATH",
        _RECORDS,
        _TRAINING_JOB,
        common=True,
        aliases=("training_data_dir",),
        example="data/mnist/train",
    )
    validation_data: str = _data(
        "",
        "PATH",
        "evaluated while training and at the end",
        "train evaluate master",
        common=True,
        aliases=_VALIDATION_ALIASES,
        helps={"evaluate": _RECORDS},
        example="data/mnist/test",
    )
    prediction_data: str = _data(
        "",
        "PATH",
        _RECORDS,
        "predict master",
        common=True,
        aliases=("prediction_data_dir",),
        example="data/mnist/test",
    )
    checkpoint_dir_for_init: str = _data(
        "",
        "DIR",
        "begin from this checkpoint",
        _JOB,
        aliases=_INIT_ALIASES,
        helps={"evaluate": _CHECKPOINT, "predict": _CHECKPOINT},
        example="ckpt/mnist",
    )
    model_zoo: str = _model("", "DIR", "where models lie", common=True, default_text="installed zoo")
    model_file: str = _model("", "FILE", "model definition, in place of --model_def")
    model_params: str = _model("", "K=V;K=V", "arguments of model and optimizer")
    feed: str = _model("feed", "NAME", "function that parses records", aliases=("dataset_fn", "input_fn"))
    loss: str = _model("loss", "NAME", "function that gives the loss")
    optimizer: str = _model("optimizer", "NAME", "function that gives the optimizer")
    eval_metrics_fn: str = _model("eval_metrics_fn", "NAME", "function that gives the metrics")
    prediction_outputs_processor: str = flag(
        "PredictionOutputsProcessor",
        "NAME",
        "class that takes predictions",
        "predict master worker",
        group="model",
        default_text="Prediction…",
    )
    prediction_output: str = flag(
        "", "DIR", "folder for the predictions' files", "predict master", group="results", common=True
    )
    prediction_format: str = flag(
        "jsonl",
        "FORMAT",
        "jsonl | csv | recordio | parquet",
        "predict master",
        group="results",
        common=True,
        choices=_PREDICTIONS,
    )
    codec_type: str = _model("bytes", "CODEC", "what a record is: bytes | tf_example", choices=_CODECS)

    # ------------------------------------------------------------ training
    num_epochs: int = _training(1, "N", "passes over the data", minimum=1, common=True)
    minibatch_size: int = _computing(
        64,
        "N",
        "records in one gradient",
        minimum=1,
        common=True,
        helps=dict.fromkeys(("evaluate", "predict"), "records computed at once"),
    )
    num_minibatches_per_task: int = _computing(8, "N", "minibatches in one task", minimum=1)
    records_per_task: int = _computing(
        None, "N", "records in one task; wins over the above", minimum=1, default_text="512"
    )
    distribution_strategy: str = _computing(
        "ParameterServerStrategy",
        "NAME",
        "only ParameterServerStrategy yet",
        choices=_STRATEGIES,
        default_text="Parameter…",
        later=_LATER,
    )
    use_async: bool = _training(False, "", "apply each gradient at once", common=True)
    lr_staleness_modulation: bool = _training(False, "", "async: divide the rate by staleness")
    get_model_steps: int = _training(1, "N", "async: steps on a local copy per pull", minimum=1)
    prefetch_rows: bool = _training(True, "", "async: pull the next rows while computing")
    sync_version_tolerance: int = _training(0, "N", "sync: versions a gradient may be old", minimum=0)
    embedding_threshold_bytes: int = _computing(
        2 << 20, "N", "larger Embedding layers go to the ps", minimum=0, default_text="2 MB"
    )
    seed: int = _computing(0, "N", "orders, initial values, random ops", minimum=0, maximum=2**63 - 1)
    max_step: int = _training(0, "N", "end after N minibatches; 0: never", minimum=0)
    stop_on_nan: bool = _training(False, "", "fail where a loss is NaN or infinite")
    worker_threads: int = _computing(
        None,
        "N",
        "threads of a worker; bits depend on it",
        minimum=1,
        maximum=MOST_THREADS,
        default_text="cores here",
    )
    onednn: bool = _computing(True, "", "TensorFlow's oneDNN kernels")

    # ------------------------------------------------------------ workers
    num_workers: int = _workers(
        2, "N", "workers to start", minimum=0, maximum=MOST_WORKERS, common=True, defaults={"master": 0}
    )
    num_ps_pods: int = _workers(
        1,
        "N",
        "parameter servers; 0: inside the master",
        minimum=0,
        maximum=MOST_SERVERS,
        common=True,
        defaults={"master": 0},
    )
    grads_to_wait: int = _workers(
        None,
        "N",
        "gradients in one synchronous step",
        readers=_TRAINING_JOB,
        minimum=1,
        maximum=MOST_WORKERS,
        common=True,
        default_text="num_workers",
    )
    min_workers: int = _workers(0, "N", "scaling goes no lower", minimum=0, maximum=MOST_WORKERS)
    max_workers: int = _workers(
        0, "N", "scaling goes no higher; 0: no limit", minimum=0, maximum=MOST_WORKERS
    )
    warm_spares: int = _workers(
        0, "N", "idle workers, ready to replace lost ones", minimum=0, maximum=MOST_WORKERS
    )
    relaunch_on_worker_failure: int = _workers(
        1, "N", "replacements after errors without progress", minimum=0
    )
    worker_hang_secs: float = _workers(
        60.0, "SECS", "without progress until a worker is replaced", minimum=1.0
    )
    local_slots: int = _workers(
        0,
        "N",
        "workers of all your jobs here; 0: no limit",
        readers=_COMMANDS,
        minimum=0,
        maximum=MOST_WORKERS,
    )
    worker_pod_priority: str = _workers("", "WHO", "goes first: high | low | high=0.5 | CLASS")
    skip_bad_tasks: bool = _workers(False, "", "end tasks that always fail, go on without")

    # ------------------------------------------------------------ results
    evaluation_steps: int = _results(
        0, "N", "evaluate each N versions; 0: at the end", minimum=0, common=True
    )
    log_loss_steps: int = _results(100, "N", "a worker logs its loss each N versions", minimum=1, common=True)
    checkpoint_steps: int = _results(0, "N", "save each N versions; 0: never", minimum=0, common=True)
    checkpoint_dir: str = _results("", "DIR", "where checkpoints go", common=True, default_text="the job's")
    keep_checkpoint_max: int = _results(0, "N", "newest checkpoints to keep; 0: all", minimum=0)
    output: str = _results(
        "", "DIR", "export the finished model there, or m.keras", common=True, example="out/mnist"
    )
    output_format: str = _results(
        "", "NAMES", "of it: saved_model,keras,safetensors", default_text="saved_model"
    )
    unknown_ids: str = _results("", "WHAT", "in it: initial | zeros | mean", default_text="initial")
    recovery_snapshot_secs: float = _results(
        30.0, "SECS", "between the job's recovery snapshots", minimum=0.1
    )

    # ------------------------------------------------------------ on a cluster
    image_name: str = _cluster("", "IMAGE", "run on Kubernetes, with this image", common=True)
    worker_image: str = _cluster("", "IMAGE", "of ps and workers, if another one")
    namespace: str = _cluster("", "NAME", "where the job runs", common=True, default_text="the context's")
    master_resource_request: str = _cluster("cpu=0.1,memory=1024Mi", "K=V,K=V", "what the master asks for")
    master_resource_limit: str = _cluster("", "K=V,K=V", "its limits", default_text="the request")
    ps_resource_request: str = _cluster("cpu=1,memory=4096Mi", "K=V,K=V", "what each ps asks for")
    ps_resource_limit: str = _cluster("", "K=V,K=V", "its limits", default_text="the request")
    worker_resource_request: str = _cluster("cpu=1,memory=4096Mi", "K=V,K=V", "what each worker asks for")
    worker_resource_limit: str = _cluster("", "K=V,K=V", "its limits", default_text="the request")
    max_worker_memory: str = _cluster(
        "", "SIZE", "a worker out of memory gets up to this", default_text="twice its limit"
    )
    master_pod_priority: str = _cluster("", "CLASS", "priority class of the master")
    ps_pod_priority: str = _cluster("", "CLASS", "priority class of the ps", default_text="the master's")
    volume: str = _cluster("", "K=V,K=V;…", "claim_name= or host_path=, mount_path=", common=True)
    image_pull_policy: str = _cluster("Always", "WHEN", "Always | IfNotPresent | Never", choices=_PULL)
    restart_policy: str = _cluster(
        "OnFailure", "WHEN", "of the master's container", choices=("OnFailure", "Always", "Never")
    )
    envs: str = _cluster("", "K=V,K=V", "environment of every pod")
    populate_env_names: str = _cluster("", "REGEX", "the master's variables for ps and workers")
    cluster_spec: str = _cluster("", "FILE", "Python: an object that changes pods")
    cluster_spec_json: str = _cluster("", "JSON", "the same as data")
    log_file_path: str = _cluster("", "FILE", "each pod's output goes there too")
    force_use_kube_config_file: bool = _cluster(False, "", "the kubeconfig, even inside a pod")
    yaml: str = _cluster("", "FILE", "write the manifests, create nothing", readers=_COMMANDS)
    dry_run: str = _cluster(
        "", "WHERE", "client | server: show, do nothing", readers=_COMMANDS, choices=_DRY, bare="client"
    )
    skip_preflight: bool = _cluster(False, "", "submit without the checks", readers=_COMMANDS)
    follow: bool = _cluster(False, "", "stay until the job ends", readers=_COMMANDS)

    # ------------------------------------------------------------ images
    image_base: str = _images("", "IMAGE", "build the job's image on this one", aliases=("base_image",))
    docker_image_prefix: str = _images(
        "", "PREFIX", "push the built image there", aliases=("docker_image_repository",)
    )
    push_image: bool = _images(False, "", "push the built image")
    extra_pypi_index: str = _images("", "URL", "another package index for the build")
    ca_bundle: str = _images("", "FILE", "PEM file: certificates that its pip trusts")
    local_pkg_dir: str = _images("", "DIR", "install edlz from the wheels there")
    docker_base_url: str = _images("", "URL", "the Docker daemon", default_text="DOCKER_HOST")
    docker_tlscert: str = _images("", "FILE", "certificate for the daemon")
    docker_tlskey: str = _images("", "FILE", "key for the daemon")

    # ------------------------------------------------------------ this run
    job_name: str = _run(
        None, "NAME", "a-z, digits and -", readers=_JOB, common=True, default_text="the model's"
    )
    config: str = _run("", "FILE", "settings as YAML: one flag a line", common=True)
    progress: str = _run(
        "auto", "HOW", "auto | live | plain | quiet | json", readers=_COMMANDS, common=True, choices=_PROGRESS
    )
    job_dir: str = _run(
        "", "DIR", "the job's files", readers=f"{_JOB} ps", default_text="EDLZ_HOME/jobs/NAME"
    )
    fresh: bool = _run(False, "", "begin anew, though a job was stopped there", readers=_JOB)
    check: bool = _run(False, "", "try the model here, train nothing", readers="train")
    restart_master: bool = _run(True, "", "start the master again if it is lost", readers=_COMMANDS)
    export_from_checkpoint: bool = _run(
        False, "", "the partitions' folders are not the workers'", readers="master", hidden=True
    )
    orphan_secs: float = _run(0.0, "SECS", "ps, worker end without master; in pods 600", minimum=0.0)
    leave_secs: float = _run(
        18.0, "SECS", "in which it is to end, on SIGTERM", readers="ps", hidden=True, minimum=0.0
    )
    patience_secs: float = _run(
        0.0,
        "SECS",
        "after SIGTERM, for who runs it to end it",
        readers="master ps worker",
        hidden=True,
        minimum=0.0,
    )
    resume: bool = _run(False, "", "go on with the job in the folder", readers="master", hidden=True)
    launch_id: str = _run(
        "",
        "ID",
        "which start of the job this is",
        readers="master",
        hidden=True,
    )
    transport_security: str = _run("curve", "HOW", "beyond this machine: curve | none", choices=_SECURITY)
    log_level: str = _run("INFO", "LEVEL", "DEBUG | INFO | WARNING | ERROR | CRITICAL", choices=_LEVELS)
    log_format: str = _run("text", "FORMAT", "text | json: one object a line", choices=("text", "json"))

    # ------------------------------------------------------------ one service, started by hand
    worker_id: int = _service(0, "N", "this worker's number", "worker", minimum=0, required_by="worker")
    ps_id: int = _service(0, "N", "this parameter server's number, from 0", "ps", minimum=0, required_by="ps")
    master_addr: str = _service("localhost:50001", "HOST:PORT", "where the master listens", "worker ps")
    port: int = _service(
        50001,
        "PORT",
        "where to listen; 0: any free one",
        "master ps",
        minimum=0,
        maximum=65535,
        defaults={"ps": None},
    )
    host: str = _service(
        "", "HOST", "this machine's name or IP for others", "master ps", default_text="127.0.0.1"
    )
    keys_dir: str = _service("", "DIR", "the job's keys, to talk to other machines", "master worker ps")
    endpoint: str = _service("", "ADDRESS", "where to listen, as ZeroMQ writes it", "master ps", hidden=True)

    given: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        self._derive("job_name", _job_name_of(self.model_def, self.model_file, self.purpose))
        self._derive("records_per_task", self.minibatch_size * self.num_minibatches_per_task)
        self._derive("grads_to_wait", 1 if self.use_async else max(1, self.num_workers))
        self._derive("worker_threads", _cores())
        self._derive("port", PS_PORT + self.ps_id)

    # ------------------------------------------------------------ what readers ask for

    @property
    def purpose(self) -> Purpose:
        """What the job is for: its data tells."""
        if self.prediction_data:
            return "prediction"
        return "evaluation" if self.validation_data and not self.training_data else "training"

    @property
    def data(self) -> str:
        """The data that the job works on."""
        return str(getattr(self, DATA_FLAGS[self.purpose]))

    @property
    def is_sync(self) -> bool:
        """Whether gradients of one step meet in it: not with a tolerance, which lets older ones in."""
        return not self.use_async and not self.sync_version_tolerance

    @property
    def is_for_cluster(self) -> bool:
        """Whether the job is for a cluster: some image is named, or one to build on, or where to push it."""
        return bool(self.image_name or self.image_base or self.docker_image_prefix)

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


def _job_name_of(model_def: str, model_file: str, purpose: Purpose) -> str:
    """Return the name of a job that has none: another one than its training has, whose files it may read."""
    parts = Path(model_def).name.removesuffix(".py").split(".")
    model = Path(model_file).stem if model_file else parts[-2] if len(parts) > 1 else parts[-1]
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
