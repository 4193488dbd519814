"""The Docker daemon, through the Docker SDK: builds and pushes as streams of records, and facts about images.

The SDK is imported when a daemon is first needed.  Its errors leave this module as errors of edlz.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.nearest import nearest
from edlz.services.errors import ConfigError, EdlzError, PeerUnavailable

__all__ = ["Address", "Daemon", "ImageError", "ImageFacts", "LocalImage", "Record", "look_up"]

Record = Mapping[str, Any]
"""One object of a daemon's stream: `stream`, `status`, `aux`, `error` …"""

_CONNECT_S, _SILENCE_S = 10, 600  # until the daemon answers at all; without a word while it pushes


class ImageError(EdlzError):
    """An image could not be built or pushed, or is not there."""

    code = "image"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the daemon is; empty: as `docker` finds it, by DOCKER_HOST or its current context."""

    url: str = ""
    certificate: str = ""
    key: str = ""

    @classmethod
    def of(cls, config: JobConfig) -> "Address":
        """Return what a job's flags say."""
        return cls(config.docker_base_url, config.docker_tlscert, config.docker_tlskey)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What is known of an image that the daemon has."""

    id: str
    size_bytes: int
    platform: str


class Daemon:
    """A connection to a Docker daemon that has answered."""

    _HELP: ClassVar = (
        "start Docker, or say where it is: DOCKER_HOST=unix:///path/docker.sock or tcp://host:2376"
    )

    def __init__(self, api: Any) -> None:
        self._api = api

    @classmethod
    def connect(cls, address: Address = Address()) -> "Daemon":
        """Return a connection.

        Raises
        ------
        ConfigError
            If the SDK is not installed, or a certificate cannot be used.
        PeerUnavailable
            If no daemon answers there, or it does not let us in.
        """
        docker = _sdk()
        where = address.url or os.environ.get("DOCKER_HOST", "")
        try:
            if address.url or address.certificate or address.key:
                client = docker.DockerClient(
                    base_url=address.url or where or None, tls=_tls(docker, address), timeout=_CONNECT_S
                )
            else:
                client = docker.from_env(timeout=_CONNECT_S)
            client.api.ping()
        except (docker.errors.DockerException, OSError, ValueError) as e:
            raise PeerUnavailable(
                f"no Docker daemon answers at {where or 'its usual place'}: {_cause(e)}", cls._HELP
            ) from e
        client.api.timeout = _SILENCE_S
        return cls(client.api)

    def close(self) -> None:
        """Let the connection go."""
        self._api.close()

    @property
    def platform(self) -> str:
        """What the daemon builds for if not told otherwise, as `linux/amd64`."""
        with self._translated("the daemon's version"):
            about = self._api.version()
        return f"{about.get('Os', 'linux')}/{about.get('Arch', '?')}"

    def image(self, name: str) -> ImageFacts | None:
        """Return the facts of an image that the daemon has; None if it has none of that name."""
        docker = _sdk()
        try:
            with self._translated(name):
                found = self._api.inspect_image(name)
        except ImageError as e:
            if isinstance(e.__cause__, docker.errors.ImageNotFound):
                return None
            raise
        platform = f"{found.get('Os', '')}/{found.get('Architecture', '')}"
        return ImageFacts(found["Id"], int(found.get("Size", 0)), platform)

    def names(self) -> list[str]:
        """Return the names of the images that the daemon has."""
        with self._translated("the list of images"):
            return sorted({name for image in self._api.images() for name in image.get("RepoTags") or ()})

    def build(
        self,
        context: Path | IO[bytes],
        name: str,
        *,
        dockerfile: str = "Dockerfile",
        platform: str = "",
        network: str = "",
        target: str = "",
        arguments: Mapping[str, str] | None = None,
    ) -> Iterator[Record]:
        """Build an image and yield what the daemon says meanwhile.

        Parameters
        ----------
        context : Path | IO[bytes]
            A folder, of which `.dockerignore` leaves things out; or a tar file, open for reading.
        """
        what: dict[str, Any] = {"tag": name, "dockerfile": dockerfile, "rm": True, "forcerm": True}
        if isinstance(context, Path):
            what["path"] = str(context)
        else:
            what.update(fileobj=context, custom_context=True)
        options = {"platform": platform, "network_mode": network, "target": target}
        what.update({key: value for key, value in options.items() if value})
        with self._translated(f"build {name}"):
            yield from self._api.build(decode=True, buildargs=dict(arguments or {}), **what)

    def push(self, name: str) -> Iterator[Record]:
        """Push an image to the registry in its name and yield what the daemon says meanwhile."""
        with self._translated(f"push {name}"):
            yield from self._api.push(name, stream=True, decode=True)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Turn the SDK's errors into ours, with the daemon's own words."""
        docker = _sdk()
        import requests

        try:
            yield
        except docker.errors.APIError as e:
            raise ImageError(f"{what}: {e.explanation or e}") from e
        except docker.errors.DockerException as e:
            raise ImageError(f"{what}: {e}") from e
        except requests.exceptions.RequestException as e:
            raise PeerUnavailable(f"{what}: the Docker daemon is gone: {_cause(e)}", self._HELP) from e


def _sdk() -> Any:
    try:
        import docker
        import docker.errors
    except ImportError as e:
        raise ConfigError(
            "images need the Docker SDK, which is not installed", "pip install 'docker>=7'"
        ) from e
    return docker


def _tls(docker: Any, address: Address) -> Any:
    if not address.certificate and not address.key:
        return False
    for flag, path in (("docker_tlscert", address.certificate), ("docker_tlskey", address.key)):
        if not Path(path).is_file():
            raise ConfigError(
                f'--{flag}="{path}" is no file', "--docker_tlscert=FILE and --docker_tlskey=FILE go together"
            )
    return docker.tls.TLSConfig(client_cert=(address.certificate, address.key), verify=True)


def _cause(error: BaseException) -> str:
    """The innermost error in a few words: those around it only say that something went wrong."""
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    words = inner.strerror if isinstance(inner, OSError) and inner.strerror else str(inner)
    return words.rstrip(".")


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image as the daemon here has it.

    Attributes
    ----------
    platform : str
        As `linux/amd64`; empty if it is not here.
    near : tuple of str
        Names of images here that are like it, if it is not.
    """

    platform: str
    near: tuple[str, ...] = ()


def look_up(image: str, address: Address) -> LocalImage | None:
    """Return what the daemon here knows of an image; None if there is no daemon, or no SDK to ask it."""
    try:
        daemon = Daemon.connect(address)
    except EdlzError:
        return None
    try:
        facts = daemon.image(image)
        return LocalImage(facts.platform) if facts else LocalImage("", tuple(nearest(image, daemon.names())))
    except EdlzError:
        return None
    finally:
        daemon.close()
