"""`edlz resume` of a job on a cluster: new pods that go on from the files of the old ones, if those lie on a volume."""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edlz.client.cluster.connection import asked
from edlz.client.cluster.following import refuse_running
from edlz.client.cluster.index import Place
from edlz.client.cluster.queries import look_at_job
from edlz.client.cluster.removal import delete_master
from edlz.client.cluster.submission import launch
from edlz.client.job_files.preflight import Preflight
from edlz.client.job_files.resumption import nothing_left, resumed_settings
from edlz.client.job_files.settings_text import settings_in
from edlz.client.screen.terminal import print_sentence
from edlz.k8s.cluster.api_errors import NotFound
from edlz.k8s.cluster.names import CLUSTER_SPEC, CONFIG, MASTER, pod_name
from edlz.k8s.flags.cluster_spec import load_cluster_spec
from edlz.k8s.flags.volumes import parse_volumes
from edlz.k8s.objects.pods import pods_of_roles
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError

if TYPE_CHECKING:
    from edlz.k8s.cluster.api import Cluster

__all__ = ["resume_on_cluster"]

_JOB_DIR = "--job_dir="


@dataclasses.dataclass(frozen=True, slots=True)
class _Kept:
    """What is left of a job: its settings, where its files are, and the text of its --cluster_spec."""

    settings: str
    job_dir: str
    cluster_spec: str


def resume_on_cluster(at: Place, argv: Sequence[str]) -> int:
    """Go on with a job in new pods; return the exit code of the command.

    Raises
    ------
    ConfigError
        If it runs, or its files went with its pods.
    """
    view = asked(at, lambda cluster: look_at_job(cluster, at))
    if word := nothing_left(at.name, view.status, argv):
        print_sentence(word)
        return 0
    kept = asked(at, lambda cluster: _what_is_kept(cluster, at))
    with tempfile.TemporaryDirectory(prefix="edlz-resume-") as folder:
        config = _settings(at, kept, argv, Path(folder))
        spec = load_cluster_spec(_with_spec(config, kept, Path(folder)))
        pods = pods_of_roles(config, config.image_name, spec)
    asked(at, lambda cluster: delete_master(cluster, at.name))
    return launch(config, pods, config.image_name)


async def _what_is_kept(cluster: "Cluster", at: Place) -> _Kept:
    refuse_running(await look_at_job(cluster, at))
    try:
        master: dict[str, Any] = await cluster.get("Pod", pod_name(at.name, MASTER))
    except NotFound:
        kept = _Kept(at.settings, at.job_dir, at.cluster_spec)
    else:
        command = master["spec"]["containers"][0].get("command") or ()
        folders = [word.removeprefix(_JOB_DIR) for word in command if word.startswith(_JOB_DIR)]
        annotations = master["metadata"].get("annotations") or {}
        kept = _Kept(
            str(annotations.get(CONFIG, "")) or at.settings,
            folders[-1] if folders else "",
            str(annotations.get(CLUSTER_SPEC, "")) or at.cluster_spec,
        )
    if not kept.settings:
        raise ConfigError(f'nothing is known of job "{at.word}" but its name', f"edlz ls -n {at.namespace}")
    settings = settings_in(kept.settings)
    if not kept.job_dir or not parse_volumes(str(settings.get("volume", ""))).holds(kept.job_dir):
        begin = settings.get("checkpoint_dir")
        raise ConfigError(
            f'job "{at.word}" cannot go on: its files lay on no volume, and went with its pods',
            f"begin from its checkpoint: edlz train … --checkpoint_dir_for_init={begin}"
            if begin
            else "begin anew, with --job_dir on a --volume",
        )
    return kept


def _settings(at: Place, kept: _Kept, argv: Sequence[str], folder: Path) -> JobConfig:
    path = folder / "job.yaml"
    path.write_text(kept.settings, encoding="utf-8")
    config = resumed_settings(path, argv, [f"{_JOB_DIR}{kept.job_dir}"], lambda _: Preflight())
    return dataclasses.replace(
        config,
        resume=True,
        namespace=at.namespace,
        image_base="",
        docker_image_prefix="",
        yaml="",
        dry_run="",
    )


def _with_spec(config: JobConfig, kept: _Kept, folder: Path) -> JobConfig:
    """Return the settings with the file of --cluster_spec where it can be read."""
    if not config.cluster_spec or not kept.cluster_spec:
        return config
    path = folder / Path(config.cluster_spec).name
    path.write_text(kept.cluster_spec, encoding="utf-8")
    return dataclasses.replace(config, cluster_spec=str(path))
