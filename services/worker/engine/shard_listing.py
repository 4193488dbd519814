"""A process that asks the model's own reader for its shards: settings on its input, the answer on its output.

Importing it imports TensorFlow: whoever starts it has prepared the environment.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

import msgspec

from edlz.api.column_statistics import use_statistics
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.inputs.custom_listing import Answer, Refused
from edlz.services.statistics.kept import pack, unpack
from edlz.services.worker.engine.contract.model_module import custom_reader

__all__ = ["main"]


class _Request(msgspec.Struct):
    config: dict[str, Any]
    origin: str


def main() -> None:
    """Answer one request; what the user's code prints goes to the error output."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_Request)
    with contextlib.redirect_stdout(sys.stderr):
        answer = _answer(JobConfig.from_record(request.config), request.origin)
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")


def _answer(config: JobConfig, origin: str) -> Answer | Refused:
    try:
        if config.statistics:
            use_statistics(unpack(pack(Path(config.statistics))))
        reader = custom_reader(config, origin)
        shards = reader.shards()
        filled = next((shard for shard in shards if shard[2]), None)
        form, columns = reader.shape(*filled[:2]) if filled else ("bytes", ())
        return Answer(shards, form, columns)
    except EdlzError as error:
        return Refused(error.code, error.message, error.help)


if __name__ == "__main__":
    main()
