"""What all converters raise."""

__all__ = ["DatasetError"]


class DatasetError(ValueError):
    """A data set cannot be read or converted; `message` says what happened, `help` what to do."""

    def __init__(self, message: str, help: str) -> None:  # noqa: A002
        super().__init__(message, help)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message}; {self.help}"
