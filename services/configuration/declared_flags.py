"""The declarations of all flags, by subject: defaults, help, limits, and who reads them.

What follows from the values, and the forms in which they travel, are `job_config`'s affair.
"""

import dataclasses
from functools import partial

from edlz.services.configuration.flags import flag
from edlz.services.configuration.job_size import MOST_SERVERS, MOST_WORKERS

__all__ = ["ANALYZED_RECORDS", "DeclaredFlags"]

MOST_THREADS = 1024  # of one process
ANALYZED_RECORDS = 1 << 16  # in one task: it has no minibatches, and writes a file

_MODEL_COMMANDS = "train evaluate predict"
_MODEL_JOB = f"{_MODEL_COMMANDS} master"  # one that has a model
_COMMANDS = f"{_MODEL_COMMANDS} analyze"
_JOB = f"{_COMMANDS} master"
_ANALYSIS = "analyze master"
_TRAINING_JOB = "train master"
_model = partial(flag, group="model", readers=f"{_MODEL_JOB} worker")
_data = partial(flag, group="model")
_computing = partial(flag, group="training", readers=_MODEL_JOB)
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
_RECORDS = "files of records, or a directory of them"
_CHECKPOINT = "checkpoint folder, or a version-<V>"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_STRATEGIES = ("Local", "ParameterServerStrategy", "AllreduceStrategy")
_LATER = {"Local": "training in one process"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeclaredFlags:
    """A field for each flag, in the order of the help pages."""

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
    analysis_data: str = _data("", "DATA", _RECORDS, _ANALYSIS, common=True, example="data/train.csv")
    columns: str = _data("", "A,B", "columns to analyze", _ANALYSIS, common=True, default_text="all")
    checkpoint_dir_for_init: str = _data(
        "",
        "DIR",
        "begin from this checkpoint",
        _MODEL_JOB,
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
    data_reader_params: str = _data(
        "", "K=V;K=V", "how data is read: reader_type=CSV;sep=,", f"{_JOB} worker"
    )
    watch_data: bool = _data(False, "", "train on what comes, too, each record once", _TRAINING_JOB)
    watch_secs: float = _data(5.0, "SECONDS", "between two looks for new data", _TRAINING_JOB, minimum=0.1)
    statistics: str = _model("", "FILE", "statistics.json, for edlz.api.statistics")
    custom_data_reader: str = _model("custom_data_reader", "NAME", "function that gives a data reader")
    codec_type: str = _model("bytes", "CODEC", "what a record is: bytes | tf_example", choices=_CODECS)

    # ------------------------------------------------------------ training
    num_epochs: int = _training(1, "N", "passes over the data; 0: without end", minimum=0, common=True)
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
        None,
        "N",
        "records in one task; wins over the above",
        readers=_JOB,
        minimum=1,
        defaults={"analyze": ANALYZED_RECORDS},
        helps={"analyze": "records in one task"},
        default_text="512",
    )
    distribution_strategy: str = _computing(
        "ParameterServerStrategy",
        "NAME",
        "or AllreduceStrategy: workers alone",
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
        readers=_MODEL_JOB,
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
    statistics_output: str = flag(
        "",
        "DIR",
        "folder for statistics.json",
        _ANALYSIS,
        group="results",
        common=True,
        default_text="the job's",
        example="/data/statistics",
    )
    vocabulary_size: int = flag(
        100_000, "N", "most frequent values that are named", _ANALYSIS, group="results", minimum=0
    )
    recovery_snapshot_secs: float = _results(
        30.0, "SECS", "between the job's recovery snapshots", minimum=0.1
    )

    tensorboard_log_dir: str = _results("", "DIR", "write curves for TensorBoard there", common=True)

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
        None,
        "NAME",
        "a-z, digits and -",
        readers=_JOB,
        common=True,
        default_text="the model's",
        default_texts={
            "evaluate": "MODEL-evaluate",
            "predict": "MODEL-predict",
            "analyze": "DATA-analyze",
        },
    )
    config: str = _run("", "FILE", "settings as YAML: one flag a line", common=True)
    progress: str = _run(
        "auto", "HOW", "auto | live | plain | quiet | json", readers=_COMMANDS, common=True, choices=_PROGRESS
    )
    job_dir: str = _run(
        "", "DIR", "the job's files", readers=f"{_JOB} ps", default_text="EDLZ_HOME/jobs/NAME"
    )
    status_port: str = _run(
        "", "PORT", "of the status page; 0: a free one; none", readers=_JOB, default_text="50002"
    )
    status_host: str = _run(
        "", "HOST", "where the status page may be seen from", readers=_JOB, default_text="127.0.0.1"
    )
    fresh: bool = _run(False, "", "begin anew, though a job was stopped there", readers=_JOB)
    check: bool = _run(False, "", "try the model here, train nothing", readers="train")
    restart_master: bool = _run(True, "", "start the master again if it is lost", readers=_COMMANDS)
    export_from_checkpoint: bool = _run(
        False, "", "the partitions' folders are not the workers'", readers="master", hidden=True
    )
    private_job_dir: bool = _run(False, "", "no two processes see the same job_dir", readers="master")
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
    metrics_host: str = _run("", "HOST", "where metrics alone are served", readers="master", hidden=True)
    origins: str = _run("", "TEXT", "where settings come from", readers="master", hidden=True, compare=False)
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
        "master ps worker",
        minimum=0,
        maximum=65535,
        defaults={"ps": None, "worker": 0},
    )
    host: str = _service(
        "", "HOST", "this machine's name or IP for others", "master ps worker", default_text="127.0.0.1"
    )
    keys_dir: str = _service("", "DIR", "the job's keys, to talk to other machines", "master worker ps")
    endpoint: str = _service(
        "", "ADDRESS", "where to listen, as ZeroMQ writes it", "master ps worker", hidden=True
    )
