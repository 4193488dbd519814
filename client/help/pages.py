"""The help pages of `edlz` itself; those of `edlz train`, `evaluate` and `predict` are drawn from the flags (`services.help_page`)."""

import textwrap
from collections.abc import Mapping, Sequence

from edlz.client.help.data_pages import DATA, DATA_COMMANDS, DATA_FLAGS, DATA_PAGES
from edlz.client.help.job_pages import JOB_COMMANDS, JOB_FLAGS, JOB_PAGES
from edlz.client.help.zoo_pages import ZOO, ZOO_COMMANDS, ZOO_FLAGS, ZOO_PAGES
from edlz.model_zoo.dataset_names import DATASETS
from edlz.services.configuration.flags import PURPOSES
from edlz.services.configuration.help_page import help_page, help_topic
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import InvalidConfigError, Problem

__all__ = ["CHANGEABLE", "COMMANDS", "DATASETS", "asked_help", "unknown_command"]

COMMANDS = {
    "train": "train a Keras model, here or on Kubernetes",
    "evaluate": "evaluate a checkpoint, here or on Kubernetes",
    "predict": "predict with a checkpoint, here or on Kubernetes",
    "analyze": "compute statistics of data, here or on Kubernetes",
    "resume": "go on with a job that was stopped",
    **JOB_COMMANDS,
    "export": "write a trained model for others to run",
    "checkpoint ls": "list checkpoints, newest first",
    "checkpoint show": "what is in a checkpoint",
    "checkpoint verify": "read checkpoints to the last byte",
    **DATA_COMMANDS,
    **ZOO_COMMANDS,
    "keys": "make keys, for services on several machines",
}
CHANGEABLE = (  # by `edlz resume`: what does not say what is trained
    "num_workers",
    "num_ps_pods",
    "distribution_strategy",
    "min_workers",
    "max_workers",
    "warm_spares",
    "relaunch_on_worker_failure",
    "worker_hang_secs",
    "local_slots",
    "worker_pod_priority",
    "restart_master",
    "orphan_secs",
    "watch_secs",
    "skip_bad_tasks",
    "max_step",
    "stop_on_nan",
    "evaluation_steps",
    "checkpoint_steps",
    "checkpoint_dir",
    "keep_checkpoint_max",
    "output",
    "output_format",
    "unknown_ids",
    "recovery_snapshot_secs",
    "log_loss_steps",
    "log_level",
    "log_format",
    "progress",
)
_GROUPS = ("checkpoint", "data", "zoo")
_FLAGS = {
    **ZOO_FLAGS,
    **DATA_FLAGS,
    **JOB_FLAGS,
    "keys": (),
    "export": (
        "--unknown_ids",
        "--output_format",
        "--model_def",
        "--model_zoo",
        "--model_file",
        "--model_params",
        "--training_data",
        "--statistics",
        "--config",
    ),
    **dict.fromkeys(("checkpoint ls", "checkpoint show", "checkpoint verify"), ("--output",)),
}


def _wrapped(names: Sequence[str]) -> str:
    return textwrap.fill(
        "  ".join(f"--{name}" for name in names), 78, initial_indent="  ", subsequent_indent="  "
    )


def _listed(commands: Mapping[str, str]) -> str:
    return "\n".join(f"  {'edlz ' + name:<22}  {text}" for name, text in commands.items())


_EDLZ = f"""\
Usage: edlz COMMAND [flags]
Train Keras models on machines that come and go.

  edlz train              {COMMANDS["train"]}
  edlz evaluate           {COMMANDS["evaluate"]}
  edlz predict            {COMMANDS["predict"]}
  edlz analyze            {COMMANDS["analyze"]}
  edlz resume             {COMMANDS["resume"]}
{_listed(JOB_COMMANDS)}
  edlz export             {COMMANDS["export"]}
  edlz checkpoint ls      {COMMANDS["checkpoint ls"]}
  edlz checkpoint show    {COMMANDS["checkpoint show"]}
  edlz checkpoint verify  {COMMANDS["checkpoint verify"]}
{_listed(DATA_COMMANDS)}
{_listed(ZOO_COMMANDS)}
  edlz keys               {COMMANDS["keys"]}

  edlz COMMAND --help      the flags of a command
  edlz --version           version of edlz, Python and TensorFlow
  edlz --install-completion  completion of flags and jobs for this shell

Environment: EDLZ_HOME  EDLZ_<FLAG>  EDLZ_DEBUG=1  NO_COLOR  FORCE_COLOR
EDLZ_HOME [~/.edlz] holds jobs/, and pycache/ with compiled modules: some 70 MB,
which may be removed, if PYTHONDONTWRITEBYTECODE is set.
"""

_CHECKPOINT = f"""\
Usage: edlz checkpoint COMMAND DIR|JOB [flags]
Checkpoints on disk.

  edlz checkpoint ls      {COMMANDS["checkpoint ls"]}
  edlz checkpoint show    {COMMANDS["checkpoint show"]}
  edlz checkpoint verify  {COMMANDS["checkpoint verify"]}

  DIR|JOB                  a checkpoint folder, a version-<V> in it, or
                           the name of a job on this machine            required
  -o, --output FORMAT      table | json                                 [table]
"""

_EXPORT = """\
Usage: edlz export JOB|CHECKPOINT OUTPUT [flags]
Write a trained model for others to run: they need no edlz.

  JOB|CHECKPOINT           a job of this machine: what it ended with, else its
                           newest checkpoint; a folder of checkpoints: the
                           newest good one; or a version-<V>           required
  OUTPUT                   a folder: the export is OUTPUT/1, the next OUTPUT/2;
                           or a file m.keras                           required
  --output_format NAMES    saved_model,keras,safetensors          [saved_model]
  --unknown_ids WHAT       what ids get that were never trained: initial |
                           zeros | mean                               [initial]
Where things lie now, if the job's own settings do not fit any more
  --model_def NAME         module.symbol in the zoo, or a directory
  --model_zoo DIR          where models lie
  --model_file FILE        model definition, in place of --model_def
  --model_params K=V;K=V   arguments of the model
  --training_data PATH     records of the same form, a few are enough
  --statistics FILE        statistics.json of the data
  --config FILE            job.yaml, of a checkpoint that an older edlz wrote
"""

_RESUME = f"""\
Usage: edlz resume JOB [flags]
Go on with a job that was stopped or interrupted, exactly where it was.

  JOB                      name of a job, or its folder here           required
  -n, --namespace NAME     of a cluster, where the job is
  --num_workers N          other numbers of processes: the result of a
  --num_ps_pods N          synchronous job stays the same, bit by bit
  Also:
{_wrapped(CHANGEABLE[2:])}

Another number of parameter servers needs a checkpoint; Ctrl-C saves one.
On a cluster new pods go on from files that lie on a volume (--job_dir).
"""

_KEYS = """\
Usage: edlz keys DIR
Make the keys of one job, for services that are started by hand on several
machines: with --keys_dir they talk encrypted, and to each other only.

  DIR                      a folder that does not exist                required

  DIR/public.json          every machine needs it
  DIR/<role>.key           master, ps, worker: each machine those that run
                           on it; client: who looks at the job from outside

Keys are secrets: copy them by a safe way (scp), and make new ones for each job.
"""


def asked_help(argv: Sequence[str]) -> str | None:
    """Return the page that a command line asks for, or None if it asks for none.

    Raises
    ------
    InvalidConfigError
        If it asks about something that does not exist.
    """
    topic = help_topic(argv)
    words = [word for word in argv if not word.startswith("-")]
    if not argv:
        return _EDLZ
    if topic is None:
        return {"data": DATA, "zoo": ZOO, "checkpoint": _CHECKPOINT, "help": _EDLZ}.get(" ".join(argv))
    if not words or words[0] == "help":
        return _EDLZ
    for command in PURPOSES:
        if words[0] == command:
            return help_page(command, topic)
    if words[0] == "resume":
        return _RESUME
    if words[0] in JOB_PAGES:
        return JOB_PAGES[words[0]]
    if words[0] == "checkpoint":
        return _CHECKPOINT
    if words[0] == "export":
        return _EXPORT
    if words[0] == "keys":
        return _KEYS
    if words[0] == "data":
        return DATA_PAGES.get(" ".join(words[1:2]), DATA)
    if words[0] == "zoo":
        return ZOO_PAGES.get(" ".join(words[1:2]), ZOO)
    problem = unknown_command(argv)
    raise InvalidConfigError([problem or Problem(f"no help for {words[0]}")])


def unknown_command(argv: Sequence[str]) -> Problem | None:
    """Return the error that a command line names no command, or a flag that its command has not."""
    words = list(argv[:2]) if argv[0] in _GROUPS else list(argv[:1])
    given = " ".join(words)
    if given in COMMANDS:
        known = _FLAGS.get(given)
        flags = [word.partition("=")[0] for word in argv if word.startswith("--")]
        plain = {_underscored(flag) for flag in known or ()}
        wrong = [word for word in flags if known is not None and _underscored(word) not in plain]
        hint = did_you_mean(nearest(wrong[0], known or ())) if wrong else ""
        return Problem(f"no flag {wrong[0]}", hint or f"edlz {given} --help") if wrong else None
    if words[-1].startswith("-"):
        return Problem(f"no flag {words[-1].partition('=')[0]} here", "a command comes first: edlz --help")
    near = [f"edlz {name}" for name in nearest(given, COMMANDS)]
    return Problem(f'no command "{given}"', did_you_mean(near) or "all commands: edlz --help")


def _underscored(flag: str) -> str:
    """Return a flag as it is known, whichever of dashes and underscores it is written with."""
    return f"--{flag[2:].replace('-', '_')}"
