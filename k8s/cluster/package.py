"""Whether the `kubernetes` package can be used: asked before anything that imports it, or much else, is."""

from edlz.services.errors import ConfigError

__all__ = ["require_kubernetes"]

_INSTALL = 'pip install "kubernetes>=37"'


def require_kubernetes() -> None:
    """Raise ConfigError unless the `kubernetes` package can be used: an old one cannot, nor one without aiohttp."""
    try:
        import kubernetes.aio.config
        import kubernetes.client  # noqa: F401
    except ImportError as error:
        is_missing = error.name == "kubernetes"
        why = "is not installed" if is_missing else f"cannot be used ({error})"
        raise ConfigError(f"a cluster cannot be used: the kubernetes package {why}", _INSTALL) from error
