"""The errors that edlz raises on purpose.

Each class holds the code it travels under; one table maps codes to classes, so that nobody parses text.
A message says what happened with the values; the `help` attribute says what to do.
"""

from typing import ClassVar

from edlz.services.valid_text import valid_text

__all__ = [
    "ERRORS_BY_CODE",
    "ConfigError",
    "DataError",
    "EdlzError",
    "LaunchError",
    "LocalProtocolError",
    "ModelError",
    "PeerUnavailable",
    "RemoteProtocolError",
    "error_of",
]


class EdlzError(Exception):
    """Base of all errors that a user or a peer may see.

    Parameters
    ----------
    message : str
        What happened, with the values as given.
    help : str, optional
        One line: what to do, best as a command.

    Both may cite what the user gave: what is not valid Unicode is escaped, so that the error can be sent and printed.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    # Marks that AutoGraph and Keras look for.  Raised in a model's code while it is traced, an error of another class
    # is replaced by one of theirs, with its text but not its help, and nobody knows any more that it was ours.
    ag_pass_through: ClassVar[bool] = True
    _keras_call_info_injected: ClassVar[bool] = True

    def __init__(self, message: str, help: str = "") -> None:  # noqa: A002
        self.message, self.help = valid_text(message), valid_text(help)
        super().__init__(self.message)


class ConfigError(EdlzError):
    """A flag, a path or a combination of flags cannot work; found before anything ran."""

    code = "config"
    exit_code = 2


class DataError(EdlzError):
    """An input file is missing, damaged or of another format."""

    code = "data"


class ModelError(EdlzError):
    """The user's model module lacks something, or its code raised."""

    code = "model"


class LocalProtocolError(EdlzError):
    """This process was about to break the protocol: a bug in edlz."""

    code = "local-protocol"
    exit_code = 70


class RemoteProtocolError(EdlzError):
    """The peer sent something that does not fit the schema or the protocol."""

    code = "remote-protocol"


class PeerUnavailable(EdlzError):
    """The peer did not answer within the deadline."""

    code = "unavailable"
    exit_code = 5


class LaunchError(EdlzError):
    """A process could not be started, or an address could not be bound."""

    code = "launch"


ERRORS_BY_CODE: dict[str, type[EdlzError]] = {
    cls.code: cls
    for cls in (
        EdlzError,
        ConfigError,
        DataError,
        ModelError,
        LocalProtocolError,
        RemoteProtocolError,
        PeerUnavailable,
        LaunchError,
    )
}


def error_of(code: str, message: str, help: str) -> EdlzError:  # noqa: A002
    """Return the error that a peer sent."""
    cls = ERRORS_BY_CODE.get(code)
    if cls is None:
        return RemoteProtocolError(f"an error of unknown code {code!r}: {message}", help)
    return cls(message, help)
