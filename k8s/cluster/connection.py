"""How the API server is found: from inside a pod, or by a kubeconfig."""

import asyncio
import logging
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from edlz.k8s.cluster.package import require_kubernetes
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, EdlzError

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

__all__ = ["Connection", "Login", "LoginFailed", "child_processes", "find_connection"]

IN_CLUSTER_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"
LOGIN_S = 60.0  # for the kubeconfig's command that gets credentials: it may ask somebody
LOGIN_AGAIN_S = 30.0  # a token that is younger is refused for another reason than its age
REAP_S, REAP_ROUNDS = 1.0, 50  # until the end of a command that was killed has been heard of
_CLIENTS_LOG = "kubernetes.aio.config.kube_config"
_BYTES = re.compile(r"""b(['"])(.*)\1$""", re.DOTALL)


class LoginFailed(EdlzError):
    """The kubeconfig's command that gets credentials failed."""

    code: ClassVar[str] = "login"
    exit_code: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the API server is.

    Attributes
    ----------
    configuration : Configuration
        Address, certificates and credentials, as the `kubernetes` client holds them.
    namespace : str
        The one to use: `--namespace`, the context's, or "default".
    context : str
        The kubeconfig's context; nothing inside a pod.
    """

    configuration: "Configuration"
    namespace: str
    context: str = ""

    @property
    def server(self) -> str:
        """The server's address."""
        return str(self.configuration.host)


class Login:
    """The token of a connection, which is got anew when it is over: those of many clusters last for minutes.

    Parameters
    ----------
    connection : Connection
        Changed in place.
    log_in : callable, optional
        Returns the same connection with a token of now; without it a token that is over stays so.

    Attributes
    ----------
    token : mapping
        What stands for the token of now: another object after each change.
    """

    def __init__(
        self, connection: Connection, log_in: Callable[[], Awaitable[Connection]] | None = None
    ) -> None:
        self._configuration, self._log_in = connection.configuration, log_in
        self._lock, self._since_s = asyncio.Lock(), time.monotonic()

    @property
    def token(self) -> Mapping[str, str]:
        keys: Mapping[str, str] = self._configuration.api_key
        return keys

    async def renew(self, refused: Mapping[str, str]) -> bool:
        """Return whether there is another token than the one that was refused; see whether one can be had.

        Raises
        ------
        ConfigError, LoginFailed
            See `find_connection`.
        """
        async with self._lock:
            if self.token is not refused:  # another request has seen to it
                return True
            if self._log_in is None or time.monotonic() - self._since_s < LOGIN_AGAIN_S:
                return False
            self._since_s = time.monotonic()
            self._configuration.api_key = (await self._log_in()).configuration.api_key
            return True


async def find_connection(config: JobConfig, context: str = "") -> Connection:
    """Return where the API server is; nothing is asked of it yet.

    Inside a pod the pod's account is used, unless `--force_use_kube_config_file` says otherwise.

    Parameters
    ----------
    config : JobConfig
        Names the namespace.
    context : str
        Of the kubeconfig; the current one, if empty.

    Raises
    ------
    ConfigError
        If the `kubernetes` package is not installed, or the kubeconfig does not say.
    LoginFailed
        If the kubeconfig names a command that gets credentials, and it gets none.
    """
    require_kubernetes()
    from kubernetes.aio import client
    from kubernetes.aio.config import ConfigException

    configuration = client.Configuration()
    configuration.retries = None  # Cluster knows which requests may be repeated
    is_inside = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and not config.force_use_kube_config_file
    try:
        if is_inside:
            return _inside(configuration, config)
        return await _by_kubeconfig(configuration, config, context)
    except ConfigException as error:
        place = "this pod's service account" if is_inside else f"the kubeconfig {_kubeconfig()}"
        raise ConfigError(f"{place} cannot be used: {error}", _help(is_inside)) from error


def _inside(configuration: "Configuration", config: JobConfig) -> Connection:
    _kube().load_incluster_config(client_configuration=configuration)
    namespace = config.namespace or os.environ.get("MY_NAMESPACE", "") or _own_namespace()
    return Connection(configuration, namespace or DEFAULT_NAMESPACE)


def _kube() -> Any:  # its functions have no types
    import kubernetes.aio.config

    return kubernetes.aio.config


def _own_namespace() -> str:
    try:
        return IN_CLUSTER_NAMESPACE.read_text().strip()
    except OSError:
        return ""


async def _by_kubeconfig(configuration: "Configuration", config: JobConfig, wanted: str) -> Connection:
    path, kube = _kubeconfig(), _kube()
    if not any(os.path.exists(part) for part in path.split(os.pathsep)):  # noqa: ASYNC240
        raise ConfigError(f"there is no kubeconfig at {path}", "set KUBECONFIG, or copy the cluster's there")
    try:
        known, current = kube.list_kube_config_contexts(config_file=path)
        named = [one for one in known if _record(one).get("name") == wanted]
        if wanted and not named:
            raise ConfigError(
                f'the kubeconfig {path} has no context "{wanted}"', "kubectl config get-contexts"
            )
        context = _record(named[0] if wanted else current)
        name = str(context.get("name", ""))
        others = child_processes()
        with _failed_logins(name):
            async with asyncio.timeout(LOGIN_S):
                await kube.load_kube_config(
                    config_file=path,
                    context=wanted or None,
                    client_configuration=configuration,
                    persist_config=False,
                )
    except TimeoutError as error:
        await _kill(child_processes() - others)
        raise _login_failed(name, f"it gave no credentials within {LOGIN_S:.0f}s") from error
    except (EdlzError, kube.ConfigException):
        raise
    except Exception as error:  # the client raises whatever its parsers raise
        said = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(f"the kubeconfig {path} cannot be used: {said}", _help(is_inside=False)) from error
    inner = _record(context.get("context"))
    namespace = config.namespace or str(inner.get("namespace") or DEFAULT_NAMESPACE)
    return Connection(configuration, namespace, name)


def child_processes() -> set[int]:
    """Return the processes that this one has started: the client does not tell which one it waits for."""
    children: set[int] = set()
    for found in Path("/proc/self/task").glob("*/children"):  # Linux; elsewhere a login command is left alone
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            children.update(int(pid) for pid in found.read_text().split())
    return children


async def _kill(processes: set[int]) -> None:
    """Kill processes of this one, and let the event loop hear of their end, so that it closes their pipes."""
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for _ in range(REAP_ROUNDS):
        is_last = not processes & child_processes()
        await asyncio.sleep(REAP_S / REAP_ROUNDS)
        if is_last:
            return


@contextmanager
def _failed_logins(context: str) -> Iterator[None]:
    """Raise LoginFailed for what the client only logs, to go on as somebody whom the cluster does not know."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    log, listener = logging.getLogger(_CLIENTS_LOG), Listener(logging.ERROR)
    propagated = log.propagate
    log.addHandler(listener)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(listener)
        log.propagate = propagated
    if said:
        raise _login_failed(context, said[0])


def _login_failed(context: str, said: str) -> LoginFailed:
    text = _BYTES.sub(r"\2", said.removeprefix("exec: ")).partition("\\n")[0]
    return LoginFailed(
        f'the command by which context "{context}" logs in failed: {text}',
        "log in again: kubectl auth whoami",
    )


def _kubeconfig() -> str:
    return os.environ.get("KUBECONFIG", "") or str(Path.home() / ".kube" / "config")


def _record(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _help(is_inside: bool) -> str:
    if is_inside:
        return "give the pod an account, or use --force_use_kube_config_file"
    return "kubectl config get-contexts; kubectl config use-context NAME"
