"""A process that asks the model's own reader for its shards: settings on its input, the answer on its output.

Importing it imports TensorFlow: whoever starts it has prepared the environment.
"""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edlz.api.column_statistics import use_statistics
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.inputs.custom_listing import AGAIN, Answer, Refused
from edlz.services.statistics.kept import pack, unpack
from edlz.services.worker.engine.contract.data_reader import CustomReader
from edlz.services.worker.engine.contract.model_module import custom_reader

__all__ = ["main"]


class _Request(msgspec.Struct):
    config: dict[str, Any]
    origin: str


def main() -> None:
    """Answer one request, or more; what the user's code prints goes to the error output."""
    if AGAIN not in sys.argv:
        _say(lambda: _first(_Asked(sys.stdin.buffer.read())))
        return
    asked: _Asked | None = None
    for line in sys.stdin.buffer:
        if asked is None:
            asked = _Asked(line)
        else:
            _say(asked.shards)


class _Asked:
    """The reader of a request."""

    def __init__(self, request: bytes) -> None:
        self._request = msgspec.json.decode(request, type=_Request)
        self._reader: CustomReader | None = None

    @property
    def reader(self) -> CustomReader:
        """Made when it is asked for the first time; its code may raise."""
        if self._reader is None:
            config = JobConfig.from_record(self._request.config)
            if config.statistics:
                use_statistics(unpack(pack(Path(config.statistics))))
            self._reader = custom_reader(config, self._request.origin)
        return self._reader

    def shards(self) -> Answer:
        """Return what there is."""
        return Answer(self.reader.shards(), "", ())


def _first(asked: _Asked) -> Answer:
    """Return what there is, and what records are like."""
    shards = asked.reader.shards()
    filled = next((shard for shard in shards if shard[2]), None)
    form, columns = asked.reader.shape(*filled[:2]) if filled else ("bytes", ())
    return Answer(shards, form, columns)


def _say(answer_of: Callable[[], Answer]) -> None:
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer: Answer | Refused = answer_of()
        except EdlzError as error:
            answer = Refused(error.code, error.message, error.help)
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
