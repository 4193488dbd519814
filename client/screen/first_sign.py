"""The first sign of life of `edlz train`: said before what takes time to import, or to look at, is begun with."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from edlz.client.screen.terminal import display_for, glyphs_for
from edlz.services.configuration.job_config import JobConfig
from edlz.services.process.logs import line_formatter

__all__ = ["first_sign"]

logger = logging.getLogger(__name__)
_ERASE = "\r\x1b[K"


@contextmanager
def first_sign(config: JobConfig, text: str) -> Iterator[None]:
    """Say what is being done: a line of the log, or on a terminal one that goes away when it is done."""
    display = display_for(config.progress, sys.stdout, os.environ)
    if display == "plain":
        _log(config, text)
    if display != "live":
        yield
        return
    sys.stdout.write(f" {config.job_name}: {text} {glyphs_for(sys.stdout).ellipsis}")
    sys.stdout.flush()
    try:
        yield
    finally:
        sys.stdout.write(_ERASE)
        sys.stdout.flush()


def _log(config: JobConfig, text: str) -> None:
    """Log it on standard output, which is not the log's place yet: the command may still refuse to run the job."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(line_formatter(config.log_format, role="supervisor", job=config.job_name))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(config.log_level)
    logger.propagate = False
    try:
        logger.info("job=%s: %s", config.job_name, text)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
