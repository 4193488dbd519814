"""The error of the RecordIO modules."""

__all__ = ["REWRITE", "RecordIOError"]

REWRITE = "restore this file from a good copy, or write it again"


class RecordIOError(ValueError):
    """A file is damaged, cut off, or not RecordIO at all.

    Parameters
    ----------
    path : str
        The file.
    offset : int
        Where in it, in bytes: the chunk that is wrong.
    message : str
        What is wrong, with file and offset.
    help : str
        What to do.
    """

    def __init__(self, path: str, offset: int, message: str, help: str) -> None:  # noqa: A002
        super().__init__(path, offset, message, help)
        self.path = path
        self.offset = offset
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message}; {self.help}"
