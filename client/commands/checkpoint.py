"""`edlz checkpoint`: what checkpoints there are, what is in one, and whether it is whole."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from edlz.client.arguments.completion import complete_checkpoint
from edlz.client.arguments.flag_values import output_format
from edlz.client.job_files.job_index import NoSuchJob, find_job, list_jobs
from edlz.client.screen.checkpoint import (
    contents_block,
    contents_object,
    verified_object,
    verified_table,
    versions_object,
    versions_table,
)
from edlz.client.screen.json_objects import object_text
from edlz.client.screen.long_work import long_work
from edlz.client.screen.terminal import print_lines
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import Problem, print_problems
from edlz.services.storage import versions as checkpoints
from edlz.services.storage.checkpoint_records import version_of
from edlz.services.storage.versions import NoCheckpoint, heads_of, list_versions, look_at

__all__ = ["checkpoint", "ls", "show", "verify"]

DAMAGED = 1
_FORMATS = ("table", "json")

checkpoint = typer.Typer(help="Checkpoints on disk.", add_completion=False)

_Target = Annotated[
    str,
    typer.Argument(
        metavar="DIR|JOB",
        help="a checkpoint folder, one version in it, or a local job's name",
        autocompletion=complete_checkpoint,
    ),
]
_Output = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="table | json")]


@checkpoint.callback()
def _group() -> None:
    """Checkpoints on disk."""


@checkpoint.command()
def ls(target: _Target, output: _Output = "table") -> None:
    """List the versions, newest first, after a quick look at each."""
    path, versions = _versions(target, output)
    if output == "json":
        _print_json(versions_object(path, versions))
    else:
        print_lines(versions_table(versions, time.time(), is_all=versions[0].folder != path))


@checkpoint.command()
def show(target: _Target, output: _Output = "table") -> None:
    """Show what is in a version: the newest good one, if none is named."""
    path, versions = _versions(target, output)
    info = next((info for info in versions if info.is_good), None)
    if info is None or info.manifest is None:
        what = versions[0].state if len(versions) == 1 else "damaged or incomplete"
        raise NoCheckpoint(f"{path} is {what}: there is nothing to show", f"edlz checkpoint verify {target}")
    heads = heads_of(info)
    if output == "json":
        _print_json(contents_object(info, heads))
    else:
        print_lines(contents_block(info, heads, time.time()))


@checkpoint.command()
def verify(target: _Target, output: _Output = "table") -> None:
    """Read every byte of the versions and check it."""
    path, versions = _versions(target, output)
    to_read = sum(info.size_bytes for info in versions if info.state != "incomplete")
    with long_work("verifying", total=to_read) as advance:
        checked = [
            (info, info.damage if info.state == "incomplete" else checkpoints.verify(info.folder, advance))
            for info in versions
        ]
    if output == "json":
        _print_json(verified_object(path, checked))
    else:
        print_lines(verified_table(checked))
        good = [info.folder for info, damage in checked if info.state != "incomplete" and not damage]
        hint = f"newest good one: {good[0]}" if good else "none of them is good"
        problems = [f"{one.path} is damaged ({one.reason})" for _, damage in checked for one in damage]
        last = len(problems) - 1
        print_problems(Problem(text, hint if i == last else "") for i, text in enumerate(problems))
    is_named = len(checked) == 1 and checked[0][0].folder == path
    if any(damage for _, damage in checked) or (is_named and checked[0][0].state == "incomplete"):
        raise typer.Exit(DAMAGED)


def _versions(target: str, output: str) -> tuple[Path, Sequence[Any]]:
    """Return the folder that is meant, and the versions in it: all, or the one that it is.

    Raises
    ------
    NoCheckpoint
        If there is none.
    """
    output_format(output, _FORMATS)
    path = _folder(target)
    named = path if version_of(path) is not None else path.resolve()
    if version_of(named) is not None:
        return named, [look_at(named)]
    versions = list_versions(path)
    if not versions:
        raise NoCheckpoint(f"{path} holds no checkpoint", "name a checkpoint folder, or a version-<V> in it")
    return path, versions


def _folder(target: str) -> Path:
    """Return the folder of checkpoints that a path or a local job's name means."""
    path = Path(target)
    if path.is_dir():
        return path
    try:
        job = find_job(target)
    except NoSuchJob as e:
        near = did_you_mean(nearest(target, [job.name for job in list_jobs()]))
        raise NoCheckpoint(
            f'"{target}" is neither a folder nor a local job',
            near or "edlz ls names the jobs of this machine",
        ) from e
    folder = job.checkpoint_directory()
    if not folder.is_dir():
        raise NoCheckpoint(
            f'job "{target}" has no checkpoints: {folder} does not exist', "--checkpoint_steps=N"
        )
    return folder


def _print_json(content: dict[str, Any]) -> None:
    print(object_text(content, "json"))
