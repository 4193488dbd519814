"""Everything that is wrong with the flags of a job on a cluster, found before anything is created."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import PurePosixPath

from edlz.k8s.cluster.names import KEYS_DIR
from edlz.k8s.flags.cluster_spec import load_cluster_spec
from edlz.k8s.flags.envs import parse_env_names, parse_envs
from edlz.k8s.flags.priorities import priority_problems
from edlz.k8s.flags.resources import resource_problems
from edlz.k8s.flags.syntax import MAX_LABEL, is_image, is_label, problem_of, problem_of_value
from edlz.k8s.flags.volumes import Volumes, parse_volumes
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import InvalidConfigError, Problem
from edlz.services.errors import ConfigError

__all__ = ["check_cluster_flags"]


def check_cluster_flags(config: JobConfig) -> list[Problem]:
    """Return all mistakes in the flags that only count on a cluster; nothing is asked of one.

    A file of --cluster_spec is run, since it is known only then whether it can be.
    """
    problems = [*_name_problems(config), *_image_problems(config), *resource_problems(config)]
    problems += priority_problems(config)
    problems += _raised(lambda: parse_envs(config.envs))
    problems += _raised(lambda: parse_env_names(config.populate_env_names))
    problems += _raised(lambda: load_cluster_spec(config))
    problems += _raised(lambda: parse_volumes(config.volume))
    with suppress(InvalidConfigError):  # told already
        problems += _folder_problems(config, parse_volumes(config.volume))
    return problems


def _raised(parse: Callable[[], object]) -> tuple[Problem, ...]:
    try:
        parse()
    except InvalidConfigError as e:
        return e.problems
    except ConfigError as e:
        return (Problem(e.message, e.help),)
    return ()


def _name_problems(config: JobConfig) -> Iterator[Problem]:
    if config.namespace and not is_label(config.namespace):
        near = re.sub(r"[^a-z0-9]+", "-", config.namespace.lower()).strip("-")[:MAX_LABEL] or "default"
        message = f"is no name of a namespace: a-z, 0-9 and -, at most {MAX_LABEL}"
        yield problem_of_value("namespace", config.namespace, message, f"--namespace={near}")


def _image_problems(config: JobConfig) -> Iterator[Problem]:
    for flag in ("image_name", "worker_image"):
        name = getattr(config, flag)
        if name and not is_image(name):
            small = name.lower() != name and is_image(name.lower())
            help_ = (
                f"--{flag}={name.lower()}" if small else f"e.g. --{flag}=registry.example.com/team/edlz:mnist"
            )
            yield problem_of_value(flag, name, "is no name of an image", help_)


def _folder_problems(config: JobConfig, volumes: Volumes) -> Iterator[Problem]:
    """Find folders that cannot be mounted, or written to."""
    if any(mount.mount_path == KEYS_DIR for mount in volumes.mounts):
        yield problem_of(
            "volume", f"mount_path={KEYS_DIR}", "edlz mounts the job's keys there", "e.g. mount_path=/data"
        )
    for flag in ("checkpoint_dir", "prediction_output", "statistics_output", "log_file_path"):
        path = getattr(config, flag)
        if path and not path.startswith("/"):
            yield problem_of_value(
                flag, path, "is no absolute path, as the pods need one", f"--{flag}=/{path}"
            )
    path = PurePosixPath(config.log_file_path)
    folder = str(path.parent)
    if path.is_absolute() and not volumes.holds(folder):
        if folder == "/":
            yield problem_of_value(
                "log_file_path", str(path), "needs a folder", f"--log_file_path=/logs{path}"
            )
        elif "$(" in folder:
            message = "has its folder on no volume, so its name has to be known beforehand"
            help_ = "mount one with --volume, or keep variables to the file's name"
            yield problem_of_value("log_file_path", str(path), message, help_)
    if config.checkpoint_dir == "/":
        yield problem_of_value("checkpoint_dir", "/", "needs a folder", "e.g. --checkpoint_dir=/checkpoints")
