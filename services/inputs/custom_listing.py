"""Asking a model's own reader what there is to read.

The model's module imports TensorFlow, which neither the master nor the command line does: so it is asked in a process
of its own, which ends with the answer.
"""

import json
import os
import subprocess
import sys
import threading

import msgspec

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, ModelError, error_of
from edlz.services.inputs.listing import Listed
from edlz.services.protocol.plan import Column, DataSource, Shard

__all__ = ["AGAIN", "CUSTOM", "Answer", "Refused", "ShardLister", "list_custom"]

CUSTOM = "custom"
"""The format of data that the model's own reader reads."""

AGAIN = "--again"
"""Has the process answer each further line of its input by what there is then."""

_COMMAND = [sys.executable, "-m", "edlz.services.worker.engine.shard_listing"]
_MOST_SECONDS = 600.0


class Answer(msgspec.Struct, tag="shards"):
    """What there is."""

    shards: list[tuple[str, int, int]]
    form: str
    columns: tuple[Column, ...]


class Refused(msgspec.Struct, tag="error"):
    """Why nothing is known: an error of edlz, as it travels."""

    code: str
    message: str
    help: str


class ShardLister:
    """Asks a reader that goes on living, for data that grows.

    Parameters
    ----------
    config : JobConfig
    origin : str
        What the flag says.
    """

    def __init__(self, config: JobConfig, origin: str) -> None:
        self._request = _request(config, origin)
        self._process: subprocess.Popen[bytes] | None = None

    def shards(self) -> list[tuple[str, int, int]]:
        """Return what there is by now: names, first records and counts.

        Raises
        ------
        ModelError
            If the model's code raises, or its process has ended: it is started anew by the next question.
        """
        process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        patience = threading.Timer(_MOST_SECONDS, process.kill)
        patience.start()
        try:
            process.stdin.write(b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        finally:
            patience.cancel()
        if not line:
            self.close()
            raise ModelError(
                "the process that asks custom_data_reader() for its shards has ended, or has not answered for"
                f" {_MOST_SECONDS:.0f}s; it is started again"
            )
        answer = msgspec.json.decode(line, type=Answer | Refused)
        if isinstance(answer, Refused):
            raise error_of(answer.code, answer.message, answer.help)
        return answer.shards

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> "subprocess.Popen[bytes]":
        arguments, about = [*_COMMAND, AGAIN], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(arguments, env=_environment(), **about)  # type: ignore[call-overload]
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(self._request + b"\n")
        return self._process


def list_custom(config: JobConfig, origin: str, flag: str) -> Listed:
    """Return what the model's `custom_data_reader` has for a flag's value.

    Raises
    ------
    ModelError
        If its code raises.
    ConfigError
        If it has no records.
    """
    try:
        done = subprocess.run(
            _COMMAND,
            input=_request(config, origin),
            capture_output=True,
            timeout=_MOST_SECONDS,
            check=False,
            env=_environment(),
        )
    except subprocess.TimeoutExpired as e:
        message = f"custom_data_reader() of the model has listed no shards in {_MOST_SECONDS:.0f}s"
        raise ModelError(message, "create_shards() must return; it is called when the job is planned") from e
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        cause = said[-1] if said else f"exit code {done.returncode}"
        raise ModelError(f"asking custom_data_reader() for its shards failed: {cause}")
    answer = msgspec.json.decode(done.stdout.splitlines()[-1], type=Answer | Refused)
    if isinstance(answer, Refused):
        raise error_of(answer.code, answer.message, answer.help)
    shards = tuple(
        Shard(name=name, first=first, count=count) for name, first, count in answer.shards if count
    )
    if not shards:
        raise ConfigError(f'{flag} "{origin}" has no records: create_shards() of the model names none')
    source = DataSource(
        format=CUSTOM,
        params=config.data_reader_params,
        origin=origin,
        form=msgspec.convert(answer.form, DataSource.__annotations__["form"]),
        columns=answer.columns,
    )
    return Listed(shards, source)


def _request(config: JobConfig, origin: str) -> bytes:
    return json.dumps({"config": config.to_record(), "origin": origin}).encode()


def _environment() -> dict[str, str]:
    return {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
