"""Whether the master's user may write where the job's files are to lie: a volume need not let it."""

import os
import tempfile
from pathlib import Path

from edlz.k8s.flags.volumes import parse_volumes
from edlz.services.configuration.export_flags import is_keras_file
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError

__all__ = ["check_folders"]


def check_folders(config: JobConfig) -> None:
    """Make the job's folder, those of its checkpoints and of its export, and see that files can be made there.

    Raises
    ------
    ConfigError
        If one cannot be written to; it says who has to let whom in, and where.
    """
    folders = {"job_dir": config.job_directory}
    if config.checkpoint_steps or config.export_from_checkpoint:
        folders["checkpoint_dir"] = config.checkpoint_directory
    if config.output and config.purpose == "training":
        output = Path(config.output)
        folders["output"] = output.parent if is_keras_file(config.output) else output
    if config.tensorboard_log_dir and config.purpose == "training":
        folders["tensorboard_log_dir"] = Path(config.tensorboard_log_dir)
    if config.purpose == "prediction" and config.prediction_output:
        folders["prediction_output"] = Path(config.prediction_output)
    if config.purpose == "analysis":
        folders["statistics_output"] = Path(config.statistics_output)
    for flag, folder in folders.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"--{flag}={folder} cannot be written to by user {os.getuid()}: {reason}"
            raise ConfigError(message, _remedy(config, folder)) from error


def _remedy(config: JobConfig, folder: Path) -> str:
    user, volumes = os.getuid(), parse_volumes(config.volume)
    volume = volumes.below(str(folder))
    if volume is None:
        return "name a folder on a --volume"
    if volume.host_path:
        what = f"chown {user} {volume.host_path} (or chmod it) on the node"
    else:
        what = f'chown {user} the folder of claim "{volume.claim_name}", whose storage ignores fsGroup'
    return f"{what}; or run the pods as its owner: runAsUser, fsGroup by --cluster_spec"
