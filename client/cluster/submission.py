"""`edlz train`, `evaluate` or `predict` with an image: checks, the master's pod, and what is said until it runs.

Only the master's pod is created here; it makes all the others.  A refusal leaves nothing behind.
"""

import asyncio
import dataclasses
import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edlz.client.cluster.checks import check_cluster
from edlz.client.cluster.connection import connected
from edlz.client.cluster.following import follow_job
from edlz.client.cluster.index import Place, remember_place
from edlz.client.cluster.job_view import ClusterJobView
from edlz.client.cluster.queries import look_at_job
from edlz.client.cluster.render_preflight import (
    crew_text,
    master_line,
    next_lines,
    object_lines,
    preflight_lines,
)
from edlz.client.images.job_image import check_image_flags, config_in_image, is_built_for_job, job_image
from edlz.client.job_files.dry_run import print_plan
from edlz.client.job_files.preflight import check_visible_model
from edlz.client.screen.job_view import exit_code_of
from edlz.client.screen.printed_status import print_status
from edlz.client.screen.screens import make_screen
from edlz.client.screen.spans import Span
from edlz.client.screen.terminal import (
    display_for,
    glyphs_for,
    has_colour,
    left_the_view,
    print_sentence,
    print_text,
)
from edlz.client.screen.verdict_text import Ending, success_block
from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import AlreadyExists, Forbidden, Invalid, NotPermitted
from edlz.k8s.cluster.manifest import to_yaml
from edlz.k8s.cluster.names import CLUSTER_SPEC, CONFIG, MASTER, SUBMISSION, pod_name
from edlz.k8s.flags.cluster_flags import check_cluster_flags
from edlz.k8s.flags.cluster_spec import load_cluster_spec
from edlz.k8s.flags.volumes import parse_volumes
from edlz.k8s.objects.pods import pods_of_roles
from edlz.services.configuration.arguments import Reading
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import InvalidConfigError, Problem, print_problems
from edlz.services.errors import ConfigError
from edlz.services.process.logs import configure_logging
from edlz.services.storage.durable import replace_file

if TYPE_CHECKING:
    from kubernetes.client import V1Pod


__all__ = ["PreflightRefused", "launch", "submit"]

MASTER_S = 60.0  # that a submission waits for the master's pod
WORD_S = 15.0  # and for its first word, once it runs
POLL_S = 0.5
_SERVER_S = 5.0  # that the cluster may take for one request
_STDOUT = "-"


class PreflightRefused(InvalidConfigError):
    """The cluster cannot take the job; nothing was created."""

    code = "preflight"
    exit_code = 3


def submit(reading: Reading) -> int:
    """Submit a job, or show what would be submitted; return the exit code.

    Raises
    ------
    InvalidConfigError
        With all mistakes in the flags and the model.
    PreflightRefused
        If the cluster cannot take it.
    """
    config = reading.config
    _check_flags(reading)
    if config.dry_run and is_built_for_job(config):
        image = "an image that is built when it is submitted"
    else:
        image = job_image(config, _say)
    pods = _pods(config, config_in_image(config), image)
    if config.yaml:
        return _write_manifest(config, pods[MASTER])
    if config.dry_run == "client":
        print_plan(reading, objects=object_lines(config, image, pod_name(config.job_name, MASTER)))
        return 0
    return launch(config, pods, image, is_dry=config.dry_run == "server")


def launch(config: JobConfig, pods: Mapping[str, "V1Pod"], image: str, *, is_dry: bool = False) -> int:
    """Create a master's pod after the checks, and wait for it; return the exit code of the command.

    Parameters
    ----------
    pods : mapping of str to V1Pod
        One of each role; the master makes the others.
    is_dry : bool
        Let the API server check the pod, and create nothing.

    Raises
    ------
    EdlzError
        If a check fails, or the cluster refuses the pod.
    """
    try:
        at = asyncio.run(_launch(config, pods, image, is_dry=is_dry))
    except KeyboardInterrupt:
        namespace = f" -n {config.namespace}" if config.namespace else ""
        _say(f"\nInterrupted. Whether {config.job_name} was submitted: edlz ls{namespace}")
        raise
    if is_dry:
        return 0
    try:
        job_view = asyncio.run(_await_master(at, config))
    except KeyboardInterrupt:
        raise left_the_view(at.word, f"edlz status {at.word}") from None
    if job_view.is_master_in_vain:
        return _give_up(job_view)
    try:
        print_text(next_lines(at.word))
        sys.stdout.flush()
        if config.follow and job_view.is_live:
            job_view = _follow(config, at)
    except KeyboardInterrupt:
        raise left_the_view(at.word, f"edlz logs -f {at.word}") from None
    return 0 if job_view.is_live else _conclude(job_view)


def _check_flags(reading: Reading) -> None:
    errors, warnings = list(reading.errors), list(reading.warnings)
    config = reading.config
    wrong = check_cluster_flags(config)
    errors += wrong
    try:
        if not any(problem.message.startswith("--image_name") for problem in wrong):
            check_image_flags(config)
        model = check_visible_model(config, must_be_here=is_built_for_job(config))
        errors += model.errors
        warnings += model.warnings
    except ConfigError as e:
        errors.append(Problem(e.message, e.help))
    if config.transport_security == "none":
        message = "--transport_security=none: whoever reaches the pods' network can read and change the job"
        warnings.append(Problem(message, "leave it out, and the job makes keys of its own"))
    print_problems(warnings, "warning")
    if errors:
        raise InvalidConfigError(errors)


def _pods(given: JobConfig, inside: JobConfig, image: str) -> dict[str, "V1Pod"]:
    """Return a pod of each role, changed by --cluster_spec, which lies here.

    Parameters
    ----------
    given, inside : JobConfig
        The settings, with their paths as they are here, and as they are in the image.
    """
    about_submission = {"yaml": "", "dry_run": "", "follow": False, "skip_preflight": False}
    inside = dataclasses.replace(inside, **about_submission)  # type: ignore[arg-type]
    return pods_of_roles(inside, image, load_cluster_spec(given))


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # /dev/stdout, a named pipe
        path.write_text(text, encoding="utf-8")
    else:
        replace_file(path.resolve(), text)


def _write_manifest(config: JobConfig, pod: "V1Pod") -> int:
    text = to_yaml([pod])
    if config.yaml == _STDOUT:
        sys.stdout.write(text)
        return 0
    try:
        _write(Path(config.yaml), text)
    except OSError as e:
        raise ConfigError(f'--yaml="{config.yaml}" cannot be written: {e.strerror}') from e
    namespace = f" -n {config.namespace}" if config.namespace else ""
    print(
        f"{config.yaml} holds the master's pod; it makes all the others\nnext: kubectl apply{namespace} -f {config.yaml}"
    )
    return 0


async def _launch(config: JobConfig, pods: Mapping[str, "V1Pod"], image: str, *, is_dry: bool) -> Place:
    pod = pods[MASTER]
    async with await Cluster.connect(config, patience_s=_SERVER_S) as cluster:
        if not config.skip_preflight:
            await _preflight(cluster, config, image, pods)
        at = _place(config, pod, cluster)
        await _create(cluster, pod, config, is_dry=is_dry)
    if is_dry:
        print_sentence(f'The API server would take {pod_name(at.name, MASTER)} in "{at.namespace}".')
    else:
        remember_place(at)
        print_sentence(f"Submitted {at.name}.")
    return at


async def _preflight(cluster: Cluster, config: JobConfig, image: str, pods: Mapping[str, "V1Pod"]) -> None:
    checks = await check_cluster(cluster, config, image, _account(pods[MASTER]), pods)
    print_text(preflight_lines(checks, cluster.context, cluster.namespace))
    sys.stdout.flush()
    problems = [Problem(check.text, check.help) for check in checks if check.mark == "no"]
    if problems:
        raise PreflightRefused(problems)


async def _create(cluster: Cluster, pod: "V1Pod", config: JobConfig, *, is_dry: bool) -> None:
    """Create the master's pod; of one that is there already, see whether an attempt without an answer made it."""
    mark, about = secrets.token_hex(8), pod.metadata
    assert about is not None, "a master's pod has a name"
    about.annotations = {**(about.annotations or {}), SUBMISSION: mark}
    try:
        await cluster.create(pod, dry_run=is_dry)
    except AlreadyExists as e:
        found = await cluster.get_pod(pod_name(config.job_name, MASTER))
        if found.annotations.get(SUBMISSION) == mark:
            return
        word = f"{config.job_name} -n {cluster.namespace}"
        ways = f"edlz status {word}, or --job_name={config.job_name}-2"
        raise PreflightRefused(
            [Problem(f'job "{config.job_name}" exists in "{cluster.namespace}"', ways)]
        ) from e
    except NotPermitted:
        raise
    except (Forbidden, Invalid) as e:  # a quota, an admission rule
        raise PreflightRefused([Problem(e.message, e.help)]) from e


def _account(pod: "V1Pod") -> str:
    """Return the service account that a pod has."""
    return (pod.spec.service_account_name if pod.spec else None) or "default"


def _place(config: JobConfig, pod: "V1Pod", cluster: Cluster) -> Place:
    notes: dict[str, str] = (pod.metadata.annotations if pod.metadata else None) or {}
    is_kept = bool(config.job_dir) and parse_volumes(config.volume).holds(config.job_dir)
    return Place(
        name=config.job_name,
        namespace=cluster.namespace,
        context=cluster.context,
        settings=notes.get(CONFIG, ""),
        cluster_spec=notes.get(CLUSTER_SPEC, ""),
        job_dir=config.job_dir if is_kept else "",
        submitted_at=time.time(),
    )


async def _await_master(at: Place, config: JobConfig) -> ClusterJobView:
    """Say what the master waits for until it has spoken, its time is over, or it has ended."""
    began, said, running_at = time.monotonic(), "", None
    async with connected(at) as cluster:
        while True:
            job_view = await look_at_job(cluster, at)
            now, text = time.monotonic(), master_line(job_view)
            is_running = job_view.master is not None and job_view.master.is_running
            running_at = (running_at or now) if is_running else None
            is_late = now - began >= MASTER_S or (running_at is not None and now - running_at >= WORD_S)
            is_late |= job_view.is_master_in_vain
            if not job_view.is_live or is_late or (is_running and job_view.has_figures):
                outcome = _outcome(job_view, text, now - began, config)
                print_sentence(f"Master {pod_name(at.name, MASTER)}: {outcome}")
                return job_view
            if text != said:
                print_sentence(f"Master {pod_name(at.name, MASTER)}: {text}{'' if is_running else ' …'}")
            said = text
            await asyncio.sleep(POLL_S)


def _outcome(job_view: ClusterJobView, text: str, took_s: float, config: JobConfig) -> str:
    if job_view.master is not None and job_view.master.is_running:
        if job_view.is_silent and job_view.note != "the master starts":
            return f"{text} ({took_s:.0f}s). {job_view.note}"
        return f"{text} ({took_s:.0f}s). {crew_text(job_view, config)}."
    if not job_view.is_live or job_view.is_master_in_vain:
        return text
    advice = f"; {job_view.master.help}" if job_view.master is not None and job_view.master.help else ""
    return f"still waits after {took_s:.0f}s: {text}{advice}"


def _give_up(job_view: ClusterJobView) -> int:
    """Say why the master does not come up, and what to do; return the exit code of its process."""
    master, word = job_view.master, job_view.word
    assert master is not None, "somebody has said why it ended"
    then = f"edlz logs {word} --master; edlz stop --now {word}, then submit it again"
    problem = Problem(f'the master of job "{word}" cannot run: {master.error}', master.help or then)
    print_problems([problem])
    if master.help:
        print_text([[Span("next: ", "dim"), Span(then, "bold")]])
    return master.code or 1


def _follow(config: JobConfig, at: Place) -> ClusterJobView:
    """Show the job until it ends."""
    display = display_for(config.progress, sys.stdout, os.environ)
    screen = make_screen(
        display,
        asked_workers=config.num_workers,
        glyphs=glyphs_for(sys.stdout),
        is_coloured=has_colour(sys.stdout, os.environ),
        footer=" Ctrl-C: leave the view",
        where=f"k8s/{at.namespace}",
    )
    configure_logging("INFO" if display == "plain" else "WARNING", stream=screen.log_stream())
    screen.open()
    try:
        return asyncio.run(follow_job(at, screen))
    finally:
        screen.close((), is_error=False)


def _conclude(job_view: ClusterJobView) -> int:
    """Print how the job ended; return its exit code."""
    status = job_view.status
    if status.state == "Succeeded":
        took_s = status.now - status.started_at
        print_text(success_block(status, Ending(took_s, job_view.logs, report=job_view.report)))
    else:
        print_status(job_view)
    return exit_code_of(status)


def _say(text: str) -> None:
    print_sentence(text, sys.stderr)
