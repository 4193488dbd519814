"""What `edlz.api.load` does: it is found there by the entry point `load` of the group `edlz.api`."""

import os
from typing import Any

from edlz.client.job_files.model_source import model_source
from edlz.services.errors import ConfigError
from edlz.services.export.exporter import load_model
from edlz.services.export.tables.table_content import UNKNOWN_IDS, UnknownIds

__all__ = ["load"]


def load(source: str | os.PathLike[str], unknown_ids: UnknownIds = "initial", **flags: str) -> Any:
    """Return the Keras model of a checkpoint or of a local job; see `edlz.api.load`.

    Raises
    ------
    ConfigError
        If `unknown_ids` is no known word, or there is no such job or checkpoint.
    """
    if unknown_ids not in UNKNOWN_IDS:
        raise ConfigError(f"unknown_ids={unknown_ids!r} is none of {', '.join(UNKNOWN_IDS)}")
    found = model_source(os.fspath(source), flags)
    with found.open() as cut:
        return load_model(found.config, found.plan, cut, unknown_ids)
