"""`edlz train` and `edlz evaluate` on this machine: the job's folder, its screen, and the supervisor between them.

Whatever happens, it leaves no process, no socket and no lock behind.
"""

import asyncio
import dataclasses
import logging
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from edlz.client.job_files.job_index import JOURNAL
from edlz.client.local.job_directory import JobDirectory, open_job_directory, write_settings
from edlz.client.local.share.share_file import LocalSlots
from edlz.client.local.supervisor import MASTER, STOP_S, Supervisor
from edlz.client.local.verdict import conclude
from edlz.client.screen.screens import Screen, make_screen
from edlz.client.screen.spans import Glyphs
from edlz.client.screen.terminal import display_for, glyphs_for, has_colour
from edlz.services.configuration.data_addresses import absolute_names
from edlz.services.configuration.flags import DATA_FLAGS
from edlz.services.configuration.job_config import JobConfig, edlz_home
from edlz.services.configuration.worker_priority import local_rank, parse_worker_priority
from edlz.services.errors import ConfigError
from edlz.services.inputs.job_data import has_custom_reader
from edlz.services.master.page.left_report import leave_report
from edlz.services.process.logs import configure_logging
from edlz.services.supervision.launcher import split_name
from edlz.services.transport.rpc import RpcClient
from edlz.services.valid_text import is_valid_text, valid_text

__all__ = ["run_local", "service_command"]

_DATA = tuple(DATA_FLAGS.values())
_PATHS = (
    "statistics",
    "statistics_output",
    "model_zoo",
    "model_file",
    "checkpoint_dir",
    "checkpoint_dir_for_init",
    "output",
    "prediction_output",
    "tensorboard_log_dir",
)

logger = logging.getLogger(__name__)


def run_local(config: JobConfig, *, is_resumed: bool = False) -> int:
    """Run a job as processes of this machine; return the exit code of the command.

    Parameters
    ----------
    is_resumed : bool
        Go on with the job whose files are in its folder.

    Raises
    ------
    EdlzError
        If it cannot begin: its name is taken, a process cannot be started.
    """
    display = display_for(config.progress, sys.stdout, os.environ)
    glyphs = glyphs_for(sys.stdout)
    screen = make_screen(
        display,
        asked_workers=config.num_workers,
        glyphs=glyphs,
        is_coloured=has_colour(sys.stdout, os.environ),
    )
    configure_logging(
        config.log_level if display == "plain" else "WARNING",
        config.log_format,
        role="supervisor",
        job=config.job_name,
        stream=screen.log_stream(),
    )
    config = _with_absolute_paths(config)
    _check_names(config)
    with open_job_directory(config, is_resumed=is_resumed) as folder:
        if folder.earlier is not None:
            logger.info("The files of the earlier run are in %s.", folder.earlier)
        config = dataclasses.replace(config, resume=is_resumed, launch_id=secrets.token_hex(8))
        return asyncio.run(_run(config, folder, screen, glyphs, is_full=display != "live"))


def service_command(config: JobConfig, folder: JobDirectory, name: str) -> list[str]:
    """Return program and arguments of a service of this job: `master`, `ps-0`, `worker-1`."""
    role, number = split_name(name)
    program = [sys.executable, "-m", f"edlz.services.{role}"]
    if role == MASTER:
        own = dataclasses.replace(config, endpoint=folder.endpoint(MASTER), job_dir=str(folder.path))
        return [*program, *own.to_arguments("master"), f"--patience_secs={STOP_S:g}"]
    command = [*program, f"--{role}_id={number}", f"--master_addr={folder.endpoint(MASTER)}"]
    if role == "ps":
        command += [f"--endpoint={folder.endpoint(name)}", f"--job_dir={folder.path}"]
        command.append("--leave_secs=0")  # it is told to end only when its job ends
    elif config.is_allreduce:
        command.append(f"--endpoint={folder.endpoint(name)}")  # other workers ask it
    if config.orphan_secs:
        command.append(f"--orphan_secs={config.orphan_secs:g}")
    command.append(f"--patience_secs={STOP_S:g}")  # a stop of the whole job is the supervisor's
    return [*command, f"--log_level={config.log_level}", f"--log_format={config.log_format}"]


async def _run(
    config: JobConfig, folder: JobDirectory, screen: Screen, glyphs: Glyphs, *, is_full: bool
) -> int:
    link = RpcClient(folder.endpoint(MASTER), role="supervisor", identity=str(os.getpid()))
    screen.open()
    try:
        supervisor = Supervisor(
            config.job_name,
            folder,
            screen,
            link,
            lambda name: service_command(config, folder, name),
            restarts_master=config.restart_master,
            slots=_slots_of(config, screen),
        )
        await supervisor.run()
    except BaseException:
        screen.close((), is_error=True)
        raise
    finally:
        link.close()
    try:
        if supervisor.evidence.status is not None:
            write_settings(folder.path, config)
        else:
            folder.keep_last_word()
    except OSError as e:  # what was there before is there still
        logger.warning("%s could not be written: %s", e.filename, e.strerror)
    leave_report(folder.path, folder.path / JOURNAL, supervisor.evidence.status)  # if its master was killed
    lines, is_error, code = conclude(supervisor.evidence, glyphs, is_full=is_full)
    screen.close(lines, is_error=is_error)
    return code


def _slots_of(config: JobConfig, screen: Screen) -> LocalSlots | None:
    if not config.local_slots:
        return None
    priority = parse_worker_priority(config.worker_pod_priority)
    ranks = [local_rank(name) for name in priority.classes(config.num_workers)]
    return LocalSlots(
        edlz_home(),
        config.job_name,
        config.local_slots,
        ranks,
        config.min_workers,
        label=priority.text,
        say=screen.say,
    )


def _check_names(config: JobConfig) -> None:
    """Refuse folders whose names the job's other processes cannot be told.

    Raises
    ------
    ConfigError
        If one is not UTF-8.
    """
    for path in (*(getattr(config, name) for name in _PATHS), str(config.job_directory)):
        if not is_valid_text(path):
            message = (
                f"{valid_text(path)} has a name that is not UTF-8, and cannot be told to other processes"
            )
            raise ConfigError(message, "rename that folder; EDLZ_HOME says where jobs keep their files")


def _with_absolute_paths(config: JobConfig) -> JobConfig:
    """Return the settings with paths that mean the same in any folder: they are kept in job.yaml."""
    names = list(_PATHS)
    if config.model_def and (Path(config.model_def).exists() or "/" in config.model_def):
        names.append("model_def")
    changed: dict[str, Any] = {
        name: str(Path(getattr(config, name)).absolute()) for name in names if getattr(config, name)
    }
    is_free = has_custom_reader(config)  # then it may be no path at all
    for name in _DATA:
        given = getattr(config, name)
        if given and (not is_free or os.path.exists(given)):
            changed[name] = absolute_names(given)
    return dataclasses.replace(config, **changed)
