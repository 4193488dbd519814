"""How the API server is found: from inside a pod, or by a kubeconfig."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edlz.services.config import JobConfig
from edlz.services.errors import ConfigError

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

__all__ = ["Connection", "find_connection", "require_kubernetes"]

IN_CLUSTER_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"
_INSTALL = 'pip install "edlz[k8s]"'


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the API server is.

    Attributes
    ----------
    configuration : address, certificates and credentials, as the `kubernetes` client holds them
    namespace : the one to use: `--namespace`, the context's, or "default"
    context : the kubeconfig's context; nothing inside a pod
    """

    configuration: "Configuration"
    namespace: str
    context: str = ""

    @property
    def server(self) -> str:
        """The server's address."""
        return str(self.configuration.host)


def require_kubernetes() -> None:
    """Raise ConfigError unless the `kubernetes` package can be used: an old one cannot, nor one without aiohttp."""
    try:
        import kubernetes.aio.config
        import kubernetes.client  # noqa: F401
    except ImportError as error:
        is_missing = error.name == "kubernetes"
        why = "is not installed" if is_missing else f"cannot be used ({error})"
        raise ConfigError(f"a cluster cannot be used: the kubernetes package {why}", _INSTALL) from error


async def find_connection(config: JobConfig, context: str = "") -> Connection:
    """Return where the API server is; nothing is asked of it yet.

    Inside a pod the pod's account is used, unless `--force_use_kube_config_file` says otherwise.

    Parameters
    ----------
    config : names the namespace
    context : of the kubeconfig; the current one, if empty

    Raises
    ------
    ConfigError
        If the `kubernetes` package is not installed, or the kubeconfig does not say.
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
        await kube.load_kube_config(
            config_file=path,
            context=wanted or None,
            client_configuration=configuration,
            persist_config=False,
        )
    except (ConfigError, kube.ConfigException):
        raise
    except Exception as error:  # the client raises whatever its parsers raise
        said = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(f"the kubeconfig {path} cannot be used: {said}", _help(is_inside=False)) from error
    inner = _record(context.get("context"))
    namespace = config.namespace or str(inner.get("namespace") or DEFAULT_NAMESPACE)
    return Connection(configuration, namespace, str(context.get("name", "")))


def _kubeconfig() -> str:
    return os.environ.get("KUBECONFIG", "") or str(Path.home() / ".kube" / "config")


def _record(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _help(is_inside: bool) -> str:
    if is_inside:
        return "give the pod an account, or use --force_use_kube_config_file"
    return "kubectl config get-contexts; kubectl config use-context NAME"
