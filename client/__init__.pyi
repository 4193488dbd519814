"""Made of the flags by scripts/make_stubs.py."""

from edlz.client.python.handle import Job as Job
from edlz.client.python.handle import JobFailed as JobFailed
from edlz.client.python.handle import JobResult as JobResult
from edlz.client.python.handle import JobStopped as JobStopped
from edlz.client.python.handle import get as get
from edlz.client.python.handle import jobs as jobs

def train(
    *,
    model_def: str = "",  # module.symbol in the zoo, or a directory
    training_data: str = "",  # files of records, or a directory of them
    validation_data: str = "",  # evaluated while training and at the end
    checkpoint_dir_for_init: str = "",  # begin from this checkpoint
    model_zoo: str = "",  # where models lie
    model_file: str = "",  # model definition, in place of --model_def
    model_params: str = "",  # arguments of model and optimizer
    feed: str = "feed",  # function that parses records
    loss: str = "loss",  # function that gives the loss
    optimizer: str = "optimizer",  # function that gives the optimizer
    eval_metrics_fn: str = "eval_metrics_fn",  # function that gives the metrics
    data_reader_params: str = "",  # how data is read: reader_type=CSV;sep=,
    watch_data: bool = False,  # train on what comes, too, each record once
    watch_secs: float = 5.0,  # between two looks for new data
    statistics: str = "",  # statistics.json, for edlz.api.statistics
    custom_data_reader: str = "custom_data_reader",  # function that gives a data reader
    codec_type: str = "bytes",  # what a record is: bytes | tf_example
    num_epochs: int = 1,  # passes over the data; 0: without end
    minibatch_size: int = 64,  # records in one gradient
    num_minibatches_per_task: int = 8,  # minibatches in one task
    records_per_task: int | None = None,  # records in one task; wins over the above
    distribution_strategy: str = "ParameterServerStrategy",  # or AllreduceStrategy: workers alone
    use_async: bool = False,  # apply each gradient at once
    lr_staleness_modulation: bool = False,  # async: divide the rate by staleness
    get_model_steps: int = 1,  # async: steps on a local copy per pull
    prefetch_rows: bool = True,  # async: pull the next rows while computing
    sync_version_tolerance: int = 0,  # sync: versions a gradient may be old
    embedding_threshold_bytes: int = 2097152,  # larger Embedding layers go to the ps
    seed: int = 0,  # orders, initial values, random ops
    max_step: int = 0,  # end after N minibatches; 0: never
    stop_on_nan: bool = False,  # fail where a loss is NaN or infinite
    worker_threads: int | None = None,  # threads of a worker; bits depend on it
    onednn: bool = True,  # TensorFlow's oneDNN kernels
    num_workers: int = 2,  # workers to start
    num_ps_pods: int = 1,  # parameter servers; 0: inside the master
    grads_to_wait: int | None = None,  # gradients in one synchronous step
    min_workers: int = 0,  # scaling goes no lower
    max_workers: int = 0,  # scaling goes no higher; 0: no limit
    warm_spares: int = 0,  # idle workers, ready to replace lost ones
    relaunch_on_worker_failure: int = 1,  # replacements after errors without progress
    worker_hang_secs: float = 60.0,  # without progress until a worker is replaced
    local_slots: int = 0,  # workers of all your jobs here; 0: no limit
    worker_pod_priority: str = "",  # goes first: high | low | high=0.5 | CLASS
    skip_bad_tasks: bool = False,  # end tasks that always fail, go on without
    evaluation_steps: int = 0,  # evaluate each N versions; 0: at the end
    log_loss_steps: int = 100,  # a worker logs its loss each N versions
    checkpoint_steps: int = 0,  # save each N versions; 0: never
    checkpoint_dir: str = "",  # where checkpoints go
    keep_checkpoint_max: int = 0,  # newest checkpoints to keep; 0: all
    output: str = "",  # export the finished model there, or m.keras
    output_format: str = "",  # of it: saved_model,keras,safetensors
    unknown_ids: str = "",  # in it: initial | zeros | mean
    recovery_snapshot_secs: float = 30.0,  # between the job's recovery snapshots
    tensorboard_log_dir: str = "",  # write curves for TensorBoard there
    image_name: str = "",  # run on Kubernetes, with this image
    worker_image: str = "",  # of ps and workers, if another one
    namespace: str = "",  # where the job runs
    master_resource_request: str = "cpu=0.1,memory=1024Mi",  # what the master asks for
    master_resource_limit: str = "",  # its limits
    ps_resource_request: str = "cpu=1,memory=4096Mi",  # what each ps asks for
    ps_resource_limit: str = "",  # its limits
    worker_resource_request: str = "cpu=1,memory=4096Mi",  # what each worker asks for
    worker_resource_limit: str = "",  # its limits
    max_worker_memory: str = "",  # a worker out of memory gets up to this
    master_pod_priority: str = "",  # priority class of the master
    ps_pod_priority: str = "",  # priority class of the ps
    volume: str = "",  # claim_name= or host_path=, mount_path=
    image_pull_policy: str = "Always",  # Always | IfNotPresent | Never
    restart_policy: str = "OnFailure",  # of the master's container
    envs: str = "",  # environment of every pod
    populate_env_names: str = "",  # the master's variables for ps and workers
    cluster_spec: str = "",  # Python: an object that changes pods
    cluster_spec_json: str = "",  # the same as data
    log_file_path: str = "",  # each pod's output goes there too
    force_use_kube_config_file: bool = False,  # the kubeconfig, even inside a pod
    yaml: str = "",  # write the manifests, create nothing
    skip_preflight: bool = False,  # submit without the checks
    image_base: str = "",  # build the job's image on this one
    docker_image_prefix: str = "",  # push the built image there
    push_image: bool = False,  # push the built image
    extra_pypi_index: str = "",  # another package index for the build
    ca_bundle: str = "",  # PEM file: certificates that its pip trusts
    local_pkg_dir: str = "",  # install edlz from the wheels there
    docker_base_url: str = "",  # the Docker daemon
    docker_tlscert: str = "",  # certificate for the daemon
    docker_tlskey: str = "",  # key for the daemon
    job_name: str | None = None,  # a-z, digits and -
    job_dir: str = "",  # the job's files
    status_port: str = "",  # of the status page; 0: a free one; none
    status_host: str = "",  # where the status page may be seen from
    fresh: bool = False,  # begin anew, though a job was stopped there
    restart_master: bool = True,  # start the master again if it is lost
    orphan_secs: float = 0.0,  # ps, worker end without master; in pods 600
    transport_security: str = "curve",  # beyond this machine: curve | none
    log_level: str = "INFO",  # DEBUG | INFO | WARNING | ERROR | CRITICAL
    log_format: str = "text",  # text | json: one object a line
) -> Job: ...
async def train_async(
    *,
    model_def: str = "",  # module.symbol in the zoo, or a directory
    training_data: str = "",  # files of records, or a directory of them
    validation_data: str = "",  # evaluated while training and at the end
    checkpoint_dir_for_init: str = "",  # begin from this checkpoint
    model_zoo: str = "",  # where models lie
    model_file: str = "",  # model definition, in place of --model_def
    model_params: str = "",  # arguments of model and optimizer
    feed: str = "feed",  # function that parses records
    loss: str = "loss",  # function that gives the loss
    optimizer: str = "optimizer",  # function that gives the optimizer
    eval_metrics_fn: str = "eval_metrics_fn",  # function that gives the metrics
    data_reader_params: str = "",  # how data is read: reader_type=CSV;sep=,
    watch_data: bool = False,  # train on what comes, too, each record once
    watch_secs: float = 5.0,  # between two looks for new data
    statistics: str = "",  # statistics.json, for edlz.api.statistics
    custom_data_reader: str = "custom_data_reader",  # function that gives a data reader
    codec_type: str = "bytes",  # what a record is: bytes | tf_example
    num_epochs: int = 1,  # passes over the data; 0: without end
    minibatch_size: int = 64,  # records in one gradient
    num_minibatches_per_task: int = 8,  # minibatches in one task
    records_per_task: int | None = None,  # records in one task; wins over the above
    distribution_strategy: str = "ParameterServerStrategy",  # or AllreduceStrategy: workers alone
    use_async: bool = False,  # apply each gradient at once
    lr_staleness_modulation: bool = False,  # async: divide the rate by staleness
    get_model_steps: int = 1,  # async: steps on a local copy per pull
    prefetch_rows: bool = True,  # async: pull the next rows while computing
    sync_version_tolerance: int = 0,  # sync: versions a gradient may be old
    embedding_threshold_bytes: int = 2097152,  # larger Embedding layers go to the ps
    seed: int = 0,  # orders, initial values, random ops
    max_step: int = 0,  # end after N minibatches; 0: never
    stop_on_nan: bool = False,  # fail where a loss is NaN or infinite
    worker_threads: int | None = None,  # threads of a worker; bits depend on it
    onednn: bool = True,  # TensorFlow's oneDNN kernels
    num_workers: int = 2,  # workers to start
    num_ps_pods: int = 1,  # parameter servers; 0: inside the master
    grads_to_wait: int | None = None,  # gradients in one synchronous step
    min_workers: int = 0,  # scaling goes no lower
    max_workers: int = 0,  # scaling goes no higher; 0: no limit
    warm_spares: int = 0,  # idle workers, ready to replace lost ones
    relaunch_on_worker_failure: int = 1,  # replacements after errors without progress
    worker_hang_secs: float = 60.0,  # without progress until a worker is replaced
    local_slots: int = 0,  # workers of all your jobs here; 0: no limit
    worker_pod_priority: str = "",  # goes first: high | low | high=0.5 | CLASS
    skip_bad_tasks: bool = False,  # end tasks that always fail, go on without
    evaluation_steps: int = 0,  # evaluate each N versions; 0: at the end
    log_loss_steps: int = 100,  # a worker logs its loss each N versions
    checkpoint_steps: int = 0,  # save each N versions; 0: never
    checkpoint_dir: str = "",  # where checkpoints go
    keep_checkpoint_max: int = 0,  # newest checkpoints to keep; 0: all
    output: str = "",  # export the finished model there, or m.keras
    output_format: str = "",  # of it: saved_model,keras,safetensors
    unknown_ids: str = "",  # in it: initial | zeros | mean
    recovery_snapshot_secs: float = 30.0,  # between the job's recovery snapshots
    tensorboard_log_dir: str = "",  # write curves for TensorBoard there
    image_name: str = "",  # run on Kubernetes, with this image
    worker_image: str = "",  # of ps and workers, if another one
    namespace: str = "",  # where the job runs
    master_resource_request: str = "cpu=0.1,memory=1024Mi",  # what the master asks for
    master_resource_limit: str = "",  # its limits
    ps_resource_request: str = "cpu=1,memory=4096Mi",  # what each ps asks for
    ps_resource_limit: str = "",  # its limits
    worker_resource_request: str = "cpu=1,memory=4096Mi",  # what each worker asks for
    worker_resource_limit: str = "",  # its limits
    max_worker_memory: str = "",  # a worker out of memory gets up to this
    master_pod_priority: str = "",  # priority class of the master
    ps_pod_priority: str = "",  # priority class of the ps
    volume: str = "",  # claim_name= or host_path=, mount_path=
    image_pull_policy: str = "Always",  # Always | IfNotPresent | Never
    restart_policy: str = "OnFailure",  # of the master's container
    envs: str = "",  # environment of every pod
    populate_env_names: str = "",  # the master's variables for ps and workers
    cluster_spec: str = "",  # Python: an object that changes pods
    cluster_spec_json: str = "",  # the same as data
    log_file_path: str = "",  # each pod's output goes there too
    force_use_kube_config_file: bool = False,  # the kubeconfig, even inside a pod
    yaml: str = "",  # write the manifests, create nothing
    skip_preflight: bool = False,  # submit without the checks
    image_base: str = "",  # build the job's image on this one
    docker_image_prefix: str = "",  # push the built image there
    push_image: bool = False,  # push the built image
    extra_pypi_index: str = "",  # another package index for the build
    ca_bundle: str = "",  # PEM file: certificates that its pip trusts
    local_pkg_dir: str = "",  # install edlz from the wheels there
    docker_base_url: str = "",  # the Docker daemon
    docker_tlscert: str = "",  # certificate for the daemon
    docker_tlskey: str = "",  # key for the daemon
    job_name: str | None = None,  # a-z, digits and -
    job_dir: str = "",  # the job's files
    status_port: str = "",  # of the status page; 0: a free one; none
    status_host: str = "",  # where the status page may be seen from
    fresh: bool = False,  # begin anew, though a job was stopped there
    restart_master: bool = True,  # start the master again if it is lost
    orphan_secs: float = 0.0,  # ps, worker end without master; in pods 600
    transport_security: str = "curve",  # beyond this machine: curve | none
    log_level: str = "INFO",  # DEBUG | INFO | WARNING | ERROR | CRITICAL
    log_format: str = "text",  # text | json: one object a line
) -> Job: ...
def evaluate(
    *,
    model_def: str = "",  # module.symbol in the zoo, or a directory
    validation_data: str = "",  # files of records, or a directory of them
    checkpoint_dir_for_init: str = "",  # checkpoint folder, or a version-<V>
    model_zoo: str = "",  # where models lie
    model_file: str = "",  # model definition, in place of --model_def
    model_params: str = "",  # arguments of model and optimizer
    feed: str = "feed",  # function that parses records
    loss: str = "loss",  # function that gives the loss
    optimizer: str = "optimizer",  # function that gives the optimizer
    eval_metrics_fn: str = "eval_metrics_fn",  # function that gives the metrics
    data_reader_params: str = "",  # how data is read: reader_type=CSV;sep=,
    statistics: str = "",  # statistics.json, for edlz.api.statistics
    custom_data_reader: str = "custom_data_reader",  # function that gives a data reader
    codec_type: str = "bytes",  # what a record is: bytes | tf_example
    minibatch_size: int = 64,  # records computed at once
    num_minibatches_per_task: int = 8,  # minibatches in one task
    records_per_task: int | None = None,  # records in one task; wins over the above
    distribution_strategy: str = "ParameterServerStrategy",  # or AllreduceStrategy: workers alone
    embedding_threshold_bytes: int = 2097152,  # larger Embedding layers go to the ps
    seed: int = 0,  # orders, initial values, random ops
    worker_threads: int | None = None,  # threads of a worker; bits depend on it
    onednn: bool = True,  # TensorFlow's oneDNN kernels
    num_workers: int = 2,  # workers to start
    num_ps_pods: int = 1,  # parameter servers; 0: inside the master
    min_workers: int = 0,  # scaling goes no lower
    max_workers: int = 0,  # scaling goes no higher; 0: no limit
    warm_spares: int = 0,  # idle workers, ready to replace lost ones
    relaunch_on_worker_failure: int = 1,  # replacements after errors without progress
    worker_hang_secs: float = 60.0,  # without progress until a worker is replaced
    local_slots: int = 0,  # workers of all your jobs here; 0: no limit
    worker_pod_priority: str = "",  # goes first: high | low | high=0.5 | CLASS
    skip_bad_tasks: bool = False,  # end tasks that always fail, go on without
    image_name: str = "",  # run on Kubernetes, with this image
    worker_image: str = "",  # of ps and workers, if another one
    namespace: str = "",  # where the job runs
    master_resource_request: str = "cpu=0.1,memory=1024Mi",  # what the master asks for
    master_resource_limit: str = "",  # its limits
    ps_resource_request: str = "cpu=1,memory=4096Mi",  # what each ps asks for
    ps_resource_limit: str = "",  # its limits
    worker_resource_request: str = "cpu=1,memory=4096Mi",  # what each worker asks for
    worker_resource_limit: str = "",  # its limits
    max_worker_memory: str = "",  # a worker out of memory gets up to this
    master_pod_priority: str = "",  # priority class of the master
    ps_pod_priority: str = "",  # priority class of the ps
    volume: str = "",  # claim_name= or host_path=, mount_path=
    image_pull_policy: str = "Always",  # Always | IfNotPresent | Never
    restart_policy: str = "OnFailure",  # of the master's container
    envs: str = "",  # environment of every pod
    populate_env_names: str = "",  # the master's variables for ps and workers
    cluster_spec: str = "",  # Python: an object that changes pods
    cluster_spec_json: str = "",  # the same as data
    log_file_path: str = "",  # each pod's output goes there too
    force_use_kube_config_file: bool = False,  # the kubeconfig, even inside a pod
    yaml: str = "",  # write the manifests, create nothing
    skip_preflight: bool = False,  # submit without the checks
    image_base: str = "",  # build the job's image on this one
    docker_image_prefix: str = "",  # push the built image there
    push_image: bool = False,  # push the built image
    extra_pypi_index: str = "",  # another package index for the build
    ca_bundle: str = "",  # PEM file: certificates that its pip trusts
    local_pkg_dir: str = "",  # install edlz from the wheels there
    docker_base_url: str = "",  # the Docker daemon
    docker_tlscert: str = "",  # certificate for the daemon
    docker_tlskey: str = "",  # key for the daemon
    job_name: str | None = None,  # a-z, digits and -
    job_dir: str = "",  # the job's files
    status_port: str = "",  # of the status page; 0: a free one; none
    status_host: str = "",  # where the status page may be seen from
    fresh: bool = False,  # begin anew, though a job was stopped there
    restart_master: bool = True,  # start the master again if it is lost
    orphan_secs: float = 0.0,  # ps, worker end without master; in pods 600
    transport_security: str = "curve",  # beyond this machine: curve | none
    log_level: str = "INFO",  # DEBUG | INFO | WARNING | ERROR | CRITICAL
    log_format: str = "text",  # text | json: one object a line
) -> Job: ...
async def evaluate_async(
    *,
    model_def: str = "",  # module.symbol in the zoo, or a directory
    validation_data: str = "",  # files of records, or a directory of them
    checkpoint_dir_for_init: str = "",  # checkpoint folder, or a version-<V>
    model_zoo: str = "",  # where models lie
    model_file: str = "",  # model definition, in place of --model_def
    model_params: str = "",  # arguments of model and optimizer
    feed: str = "feed",  # function that parses records
    loss: str = "loss",  # function that gives the loss
    optimizer: str = "optimizer",  # function that gives the optimizer
    eval_metrics_fn: str = "eval_metrics_fn",  # function that gives the metrics
    data_reader_params: str = "",  # how data is read: reader_type=CSV;sep=,
    statistics: str = "",  # statistics.json, for edlz.api.statistics
    custom_data_reader: str = "custom_data_reader",  # function that gives a data reader
    codec_type: str = "bytes",  # what a record is: bytes | tf_example
    minibatch_size: int = 64,  # records computed at once
    num_minibatches_per_task: int = 8,  # minibatches in one task
    records_per_task: int | None = None,  # records in one task; wins over the above
    distribution_strategy: str = "ParameterServerStrategy",  # or AllreduceStrategy: workers alone
    embedding_threshold_bytes: int = 2097152,  # larger Embedding layers go to the ps
    seed: int = 0,  # orders, initial values, random ops
    worker_threads: int | None = None,  # threads of a worker; bits depend on it
    onednn: bool = True,  # TensorFlow's oneDNN kernels
    num_workers: int = 2,  # workers to start
    num_ps_pods: int = 1,  # parameter servers; 0: inside the master
    min_workers: int = 0,  # scaling goes no lower
    max_workers: int = 0,  # scaling goes no higher; 0: no limit
    warm_spares: int = 0,  # idle workers, ready to replace lost ones
    relaunch_on_worker_failure: int = 1,  # replacements after errors without progress
    worker_hang_secs: float = 60.0,  # without progress until a worker is replaced
    local_slots: int = 0,  # workers of all your jobs here; 0: no limit
    worker_pod_priority: str = "",  # goes first: high | low | high=0.5 | CLASS
    skip_bad_tasks: bool = False,  # end tasks that always fail, go on without
    image_name: str = "",  # run on Kubernetes, with this image
    worker_image: str = "",  # of ps and workers, if another one
    namespace: str = "",  # where the job runs
    master_resource_request: str = "cpu=0.1,memory=1024Mi",  # what the master asks for
    master_resource_limit: str = "",  # its limits
    ps_resource_request: str = "cpu=1,memory=4096Mi",  # what each ps asks for
    ps_resource_limit: str = "",  # its limits
    worker_resource_request: str = "cpu=1,memory=4096Mi",  # what each worker asks for
    worker_resource_limit: str = "",  # its limits
    max_worker_memory: str = "",  # a worker out of memory gets up to this
    master_pod_priority: str = "",  # priority class of the master
    ps_pod_priority: str = "",  # priority class of the ps
    volume: str = "",  # claim_name= or host_path=, mount_path=
    image_pull_policy: str = "Always",  # Always | IfNotPresent | Never
    restart_policy: str = "OnFailure",  # of the master's container
    envs: str = "",  # environment of every pod
    populate_env_names: str = "",  # the master's variables for ps and workers
    cluster_spec: str = "",  # Python: an object that changes pods
    cluster_spec_json: str = "",  # the same as data
    log_file_path: str = "",  # each pod's output goes there too
    force_use_kube_config_file: bool = False,  # the kubeconfig, even inside a pod
    yaml: str = "",  # write the manifests, create nothing
    skip_preflight: bool = False,  # submit without the checks
    image_base: str = "",  # build the job's image on this one
    docker_image_prefix: str = "",  # push the built image there
    push_image: bool = False,  # push the built image
    extra_pypi_index: str = "",  # another package index for the build
    ca_bundle: str = "",  # PEM file: certificates that its pip trusts
    local_pkg_dir: str = "",  # install edlz from the wheels there
    docker_base_url: str = "",  # the Docker daemon
    docker_tlscert: str = "",  # certificate for the daemon
    docker_tlskey: str = "",  # key for the daemon
    job_name: str | None = None,  # a-z, digits and -
    job_dir: str = "",  # the job's files
    status_port: str = "",  # of the status page; 0: a free one; none
    status_host: str = "",  # where the status page may be seen from
    fresh: bool = False,  # begin anew, though a job was stopped there
    restart_master: bool = True,  # start the master again if it is lost
    orphan_secs: float = 0.0,  # ps, worker end without master; in pods 600
    transport_security: str = "curve",  # beyond this machine: curve | none
    log_level: str = "INFO",  # DEBUG | INFO | WARNING | ERROR | CRITICAL
    log_format: str = "text",  # text | json: one object a line
) -> Job: ...
def predict(
    *,
    model_def: str = "",  # module.symbol in the zoo, or a directory
    prediction_data: str = "",  # files of records, or a directory of them
    checkpoint_dir_for_init: str = "",  # checkpoint folder, or a version-<V>
    model_zoo: str = "",  # where models lie
    model_file: str = "",  # model definition, in place of --model_def
    model_params: str = "",  # arguments of model and optimizer
    feed: str = "feed",  # function that parses records
    loss: str = "loss",  # function that gives the loss
    optimizer: str = "optimizer",  # function that gives the optimizer
    eval_metrics_fn: str = "eval_metrics_fn",  # function that gives the metrics
    prediction_outputs_processor: str = "PredictionOutputsProcessor",  # class that takes predictions
    prediction_output: str = "",  # folder for the predictions' files
    prediction_format: str = "jsonl",  # jsonl | csv | recordio | parquet
    data_reader_params: str = "",  # how data is read: reader_type=CSV;sep=,
    statistics: str = "",  # statistics.json, for edlz.api.statistics
    custom_data_reader: str = "custom_data_reader",  # function that gives a data reader
    codec_type: str = "bytes",  # what a record is: bytes | tf_example
    minibatch_size: int = 64,  # records computed at once
    num_minibatches_per_task: int = 8,  # minibatches in one task
    records_per_task: int | None = None,  # records in one task; wins over the above
    distribution_strategy: str = "ParameterServerStrategy",  # or AllreduceStrategy: workers alone
    embedding_threshold_bytes: int = 2097152,  # larger Embedding layers go to the ps
    seed: int = 0,  # orders, initial values, random ops
    worker_threads: int | None = None,  # threads of a worker; bits depend on it
    onednn: bool = True,  # TensorFlow's oneDNN kernels
    num_workers: int = 2,  # workers to start
    num_ps_pods: int = 1,  # parameter servers; 0: inside the master
    min_workers: int = 0,  # scaling goes no lower
    max_workers: int = 0,  # scaling goes no higher; 0: no limit
    warm_spares: int = 0,  # idle workers, ready to replace lost ones
    relaunch_on_worker_failure: int = 1,  # replacements after errors without progress
    worker_hang_secs: float = 60.0,  # without progress until a worker is replaced
    local_slots: int = 0,  # workers of all your jobs here; 0: no limit
    worker_pod_priority: str = "",  # goes first: high | low | high=0.5 | CLASS
    skip_bad_tasks: bool = False,  # end tasks that always fail, go on without
    image_name: str = "",  # run on Kubernetes, with this image
    worker_image: str = "",  # of ps and workers, if another one
    namespace: str = "",  # where the job runs
    master_resource_request: str = "cpu=0.1,memory=1024Mi",  # what the master asks for
    master_resource_limit: str = "",  # its limits
    ps_resource_request: str = "cpu=1,memory=4096Mi",  # what each ps asks for
    ps_resource_limit: str = "",  # its limits
    worker_resource_request: str = "cpu=1,memory=4096Mi",  # what each worker asks for
    worker_resource_limit: str = "",  # its limits
    max_worker_memory: str = "",  # a worker out of memory gets up to this
    master_pod_priority: str = "",  # priority class of the master
    ps_pod_priority: str = "",  # priority class of the ps
    volume: str = "",  # claim_name= or host_path=, mount_path=
    image_pull_policy: str = "Always",  # Always | IfNotPresent | Never
    restart_policy: str = "OnFailure",  # of the master's container
    envs: str = "",  # environment of every pod
    populate_env_names: str = "",  # the master's variables for ps and workers
    cluster_spec: str = "",  # Python: an object that changes pods
    cluster_spec_json: str = "",  # the same as data
    log_file_path: str = "",  # each pod's output goes there too
    force_use_kube_config_file: bool = False,  # the kubeconfig, even inside a pod
    yaml: str = "",  # write the manifests, create nothing
    skip_preflight: bool = False,  # submit without the checks
    image_base: str = "",  # build the job's image on this one
    docker_image_prefix: str = "",  # push the built image there
    push_image: bool = False,  # push the built image
    extra_pypi_index: str = "",  # another package index for the build
    ca_bundle: str = "",  # PEM file: certificates that its pip trusts
    local_pkg_dir: str = "",  # install edlz from the wheels there
    docker_base_url: str = "",  # the Docker daemon
    docker_tlscert: str = "",  # certificate for the daemon
    docker_tlskey: str = "",  # key for the daemon
    job_name: str | None = None,  # a-z, digits and -
    job_dir: str = "",  # the job's files
    status_port: str = "",  # of the status page; 0: a free one; none
    status_host: str = "",  # where the status page may be seen from
    fresh: bool = False,  # begin anew, though a job was stopped there
    restart_master: bool = True,  # start the master again if it is lost
    orphan_secs: float = 0.0,  # ps, worker end without master; in pods 600
    transport_security: str = "curve",  # beyond this machine: curve | none
    log_level: str = "INFO",  # DEBUG | INFO | WARNING | ERROR | CRITICAL
    log_format: str = "text",  # text | json: one object a line
) -> Job: ...
async def predict_async(
    *,
    model_def: str = "",  # module.symbol in the zoo, or a directory
    prediction_data: str = "",  # files of records, or a directory of them
    checkpoint_dir_for_init: str = "",  # checkpoint folder, or a version-<V>
    model_zoo: str = "",  # where models lie
    model_file: str = "",  # model definition, in place of --model_def
    model_params: str = "",  # arguments of model and optimizer
    feed: str = "feed",  # function that parses records
    loss: str = "loss",  # function that gives the loss
    optimizer: str = "optimizer",  # function that gives the optimizer
    eval_metrics_fn: str = "eval_metrics_fn",  # function that gives the metrics
    prediction_outputs_processor: str = "PredictionOutputsProcessor",  # class that takes predictions
    prediction_output: str = "",  # folder for the predictions' files
    prediction_format: str = "jsonl",  # jsonl | csv | recordio | parquet
    data_reader_params: str = "",  # how data is read: reader_type=CSV;sep=,
    statistics: str = "",  # statistics.json, for edlz.api.statistics
    custom_data_reader: str = "custom_data_reader",  # function that gives a data reader
    codec_type: str = "bytes",  # what a record is: bytes | tf_example
    minibatch_size: int = 64,  # records computed at once
    num_minibatches_per_task: int = 8,  # minibatches in one task
    records_per_task: int | None = None,  # records in one task; wins over the above
    distribution_strategy: str = "ParameterServerStrategy",  # or AllreduceStrategy: workers alone
    embedding_threshold_bytes: int = 2097152,  # larger Embedding layers go to the ps
    seed: int = 0,  # orders, initial values, random ops
    worker_threads: int | None = None,  # threads of a worker; bits depend on it
    onednn: bool = True,  # TensorFlow's oneDNN kernels
    num_workers: int = 2,  # workers to start
    num_ps_pods: int = 1,  # parameter servers; 0: inside the master
    min_workers: int = 0,  # scaling goes no lower
    max_workers: int = 0,  # scaling goes no higher; 0: no limit
    warm_spares: int = 0,  # idle workers, ready to replace lost ones
    relaunch_on_worker_failure: int = 1,  # replacements after errors without progress
    worker_hang_secs: float = 60.0,  # without progress until a worker is replaced
    local_slots: int = 0,  # workers of all your jobs here; 0: no limit
    worker_pod_priority: str = "",  # goes first: high | low | high=0.5 | CLASS
    skip_bad_tasks: bool = False,  # end tasks that always fail, go on without
    image_name: str = "",  # run on Kubernetes, with this image
    worker_image: str = "",  # of ps and workers, if another one
    namespace: str = "",  # where the job runs
    master_resource_request: str = "cpu=0.1,memory=1024Mi",  # what the master asks for
    master_resource_limit: str = "",  # its limits
    ps_resource_request: str = "cpu=1,memory=4096Mi",  # what each ps asks for
    ps_resource_limit: str = "",  # its limits
    worker_resource_request: str = "cpu=1,memory=4096Mi",  # what each worker asks for
    worker_resource_limit: str = "",  # its limits
    max_worker_memory: str = "",  # a worker out of memory gets up to this
    master_pod_priority: str = "",  # priority class of the master
    ps_pod_priority: str = "",  # priority class of the ps
    volume: str = "",  # claim_name= or host_path=, mount_path=
    image_pull_policy: str = "Always",  # Always | IfNotPresent | Never
    restart_policy: str = "OnFailure",  # of the master's container
    envs: str = "",  # environment of every pod
    populate_env_names: str = "",  # the master's variables for ps and workers
    cluster_spec: str = "",  # Python: an object that changes pods
    cluster_spec_json: str = "",  # the same as data
    log_file_path: str = "",  # each pod's output goes there too
    force_use_kube_config_file: bool = False,  # the kubeconfig, even inside a pod
    yaml: str = "",  # write the manifests, create nothing
    skip_preflight: bool = False,  # submit without the checks
    image_base: str = "",  # build the job's image on this one
    docker_image_prefix: str = "",  # push the built image there
    push_image: bool = False,  # push the built image
    extra_pypi_index: str = "",  # another package index for the build
    ca_bundle: str = "",  # PEM file: certificates that its pip trusts
    local_pkg_dir: str = "",  # install edlz from the wheels there
    docker_base_url: str = "",  # the Docker daemon
    docker_tlscert: str = "",  # certificate for the daemon
    docker_tlskey: str = "",  # key for the daemon
    job_name: str | None = None,  # a-z, digits and -
    job_dir: str = "",  # the job's files
    status_port: str = "",  # of the status page; 0: a free one; none
    status_host: str = "",  # where the status page may be seen from
    fresh: bool = False,  # begin anew, though a job was stopped there
    restart_master: bool = True,  # start the master again if it is lost
    orphan_secs: float = 0.0,  # ps, worker end without master; in pods 600
    transport_security: str = "curve",  # beyond this machine: curve | none
    log_level: str = "INFO",  # DEBUG | INFO | WARNING | ERROR | CRITICAL
    log_format: str = "text",  # text | json: one object a line
) -> Job: ...
def analyze(
    *,
    analysis_data: str = "",  # files of records, or a directory of them
    columns: str = "",  # columns to analyze
    data_reader_params: str = "",  # how data is read: reader_type=CSV;sep=,
    records_per_task: int = 65536,  # records in one task
    num_workers: int = 2,  # workers to start
    min_workers: int = 0,  # scaling goes no lower
    max_workers: int = 0,  # scaling goes no higher; 0: no limit
    warm_spares: int = 0,  # idle workers, ready to replace lost ones
    relaunch_on_worker_failure: int = 1,  # replacements after errors without progress
    worker_hang_secs: float = 60.0,  # without progress until a worker is replaced
    local_slots: int = 0,  # workers of all your jobs here; 0: no limit
    worker_pod_priority: str = "",  # goes first: high | low | high=0.5 | CLASS
    skip_bad_tasks: bool = False,  # end tasks that always fail, go on without
    statistics_output: str = "",  # folder for statistics.json
    vocabulary_size: int = 100000,  # most frequent values that are named
    image_name: str = "",  # run on Kubernetes, with this image
    worker_image: str = "",  # of ps and workers, if another one
    namespace: str = "",  # where the job runs
    master_resource_request: str = "cpu=0.1,memory=1024Mi",  # what the master asks for
    master_resource_limit: str = "",  # its limits
    ps_resource_request: str = "cpu=1,memory=4096Mi",  # what each ps asks for
    ps_resource_limit: str = "",  # its limits
    worker_resource_request: str = "cpu=1,memory=4096Mi",  # what each worker asks for
    worker_resource_limit: str = "",  # its limits
    max_worker_memory: str = "",  # a worker out of memory gets up to this
    master_pod_priority: str = "",  # priority class of the master
    ps_pod_priority: str = "",  # priority class of the ps
    volume: str = "",  # claim_name= or host_path=, mount_path=
    image_pull_policy: str = "Always",  # Always | IfNotPresent | Never
    restart_policy: str = "OnFailure",  # of the master's container
    envs: str = "",  # environment of every pod
    populate_env_names: str = "",  # the master's variables for ps and workers
    cluster_spec: str = "",  # Python: an object that changes pods
    cluster_spec_json: str = "",  # the same as data
    log_file_path: str = "",  # each pod's output goes there too
    force_use_kube_config_file: bool = False,  # the kubeconfig, even inside a pod
    yaml: str = "",  # write the manifests, create nothing
    skip_preflight: bool = False,  # submit without the checks
    image_base: str = "",  # build the job's image on this one
    docker_image_prefix: str = "",  # push the built image there
    push_image: bool = False,  # push the built image
    extra_pypi_index: str = "",  # another package index for the build
    ca_bundle: str = "",  # PEM file: certificates that its pip trusts
    local_pkg_dir: str = "",  # install edlz from the wheels there
    docker_base_url: str = "",  # the Docker daemon
    docker_tlscert: str = "",  # certificate for the daemon
    docker_tlskey: str = "",  # key for the daemon
    job_name: str | None = None,  # a-z, digits and -
    job_dir: str = "",  # the job's files
    status_port: str = "",  # of the status page; 0: a free one; none
    status_host: str = "",  # where the status page may be seen from
    fresh: bool = False,  # begin anew, though a job was stopped there
    restart_master: bool = True,  # start the master again if it is lost
    orphan_secs: float = 0.0,  # ps, worker end without master; in pods 600
    transport_security: str = "curve",  # beyond this machine: curve | none
    log_level: str = "INFO",  # DEBUG | INFO | WARNING | ERROR | CRITICAL
    log_format: str = "text",  # text | json: one object a line
) -> Job: ...
async def analyze_async(
    *,
    analysis_data: str = "",  # files of records, or a directory of them
    columns: str = "",  # columns to analyze
    data_reader_params: str = "",  # how data is read: reader_type=CSV;sep=,
    records_per_task: int = 65536,  # records in one task
    num_workers: int = 2,  # workers to start
    min_workers: int = 0,  # scaling goes no lower
    max_workers: int = 0,  # scaling goes no higher; 0: no limit
    warm_spares: int = 0,  # idle workers, ready to replace lost ones
    relaunch_on_worker_failure: int = 1,  # replacements after errors without progress
    worker_hang_secs: float = 60.0,  # without progress until a worker is replaced
    local_slots: int = 0,  # workers of all your jobs here; 0: no limit
    worker_pod_priority: str = "",  # goes first: high | low | high=0.5 | CLASS
    skip_bad_tasks: bool = False,  # end tasks that always fail, go on without
    statistics_output: str = "",  # folder for statistics.json
    vocabulary_size: int = 100000,  # most frequent values that are named
    image_name: str = "",  # run on Kubernetes, with this image
    worker_image: str = "",  # of ps and workers, if another one
    namespace: str = "",  # where the job runs
    master_resource_request: str = "cpu=0.1,memory=1024Mi",  # what the master asks for
    master_resource_limit: str = "",  # its limits
    ps_resource_request: str = "cpu=1,memory=4096Mi",  # what each ps asks for
    ps_resource_limit: str = "",  # its limits
    worker_resource_request: str = "cpu=1,memory=4096Mi",  # what each worker asks for
    worker_resource_limit: str = "",  # its limits
    max_worker_memory: str = "",  # a worker out of memory gets up to this
    master_pod_priority: str = "",  # priority class of the master
    ps_pod_priority: str = "",  # priority class of the ps
    volume: str = "",  # claim_name= or host_path=, mount_path=
    image_pull_policy: str = "Always",  # Always | IfNotPresent | Never
    restart_policy: str = "OnFailure",  # of the master's container
    envs: str = "",  # environment of every pod
    populate_env_names: str = "",  # the master's variables for ps and workers
    cluster_spec: str = "",  # Python: an object that changes pods
    cluster_spec_json: str = "",  # the same as data
    log_file_path: str = "",  # each pod's output goes there too
    force_use_kube_config_file: bool = False,  # the kubeconfig, even inside a pod
    yaml: str = "",  # write the manifests, create nothing
    skip_preflight: bool = False,  # submit without the checks
    image_base: str = "",  # build the job's image on this one
    docker_image_prefix: str = "",  # push the built image there
    push_image: bool = False,  # push the built image
    extra_pypi_index: str = "",  # another package index for the build
    ca_bundle: str = "",  # PEM file: certificates that its pip trusts
    local_pkg_dir: str = "",  # install edlz from the wheels there
    docker_base_url: str = "",  # the Docker daemon
    docker_tlscert: str = "",  # certificate for the daemon
    docker_tlskey: str = "",  # key for the daemon
    job_name: str | None = None,  # a-z, digits and -
    job_dir: str = "",  # the job's files
    status_port: str = "",  # of the status page; 0: a free one; none
    status_host: str = "",  # where the status page may be seen from
    fresh: bool = False,  # begin anew, though a job was stopped there
    restart_master: bool = True,  # start the master again if it is lost
    orphan_secs: float = 0.0,  # ps, worker end without master; in pods 600
    transport_security: str = "curve",  # beyond this machine: curve | none
    log_level: str = "INFO",  # DEBUG | INFO | WARNING | ERROR | CRITICAL
    log_format: str = "text",  # text | json: one object a line
) -> Job: ...
