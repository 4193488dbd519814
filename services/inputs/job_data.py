"""The data of a job by its settings: a reader of the model's own, or files of a format that edlz knows."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from edlz.services.configuration.data_addresses import absolute_names
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.inputs.analyzed_data import list_analyzed
from edlz.services.inputs.custom_listing import list_custom
from edlz.services.inputs.listing import Listed, list_data, list_files
from edlz.services.inputs.model_location import locate_attribute, locate_model
from edlz.services.inputs.model_symbols import read_symbols
from edlz.services.inputs.reading.params import parse_params
from edlz.services.inputs.watching import settled_files
from edlz.services.protocol.plan import DataSource

__all__ = ["has_custom_reader", "list_job_data"]

logger = logging.getLogger(__name__)

_FLAG = "custom_data_reader"
_MOST_TOLD = 3
_FORMS = {"bytes": "byte strings", "columns": "columns"}


def list_job_data(
    config: JobConfig,
    given: str,
    flag: str,
    training: Listed | None = None,
    tell: Callable[[str], None] = logger.info,
    *,
    is_quick: bool = False,
) -> Listed:
    """Return the records that a flag of a job names.

    Parameters
    ----------
    training : Listed, optional
        The job's training data, if these are others: their columns have the same types.
    is_quick : bool
        Large files need not be counted.

    Raises
    ------
    ConfigError, DataError
        As `list_data`.
    ModelError
        If the model's own reader raises.
    """
    if config.purpose == "analysis":
        return list_analyzed(given, flag, config.data_reader_params, config.columns, tell, is_quick=is_quick)
    if has_custom_reader(config):
        return list_custom(config, given, flag)
    columns = training.source.columns if training else ()
    if config.watch_data and training is None:
        return _begun(given, flag, config.data_reader_params, tell, is_quick=is_quick)
    listed = list_data(given, flag, config.data_reader_params, tell, columns, is_quick=is_quick)
    if training is not None:
        for difference in _differences(training.source, listed.source, flag)[:_MOST_TOLD]:
            tell(difference)
    return listed


def _differences(training: DataSource, other: DataSource, flag: str) -> list[str]:
    """Return where other records of a job are not as those that it trains on: a feed may mind, hours later."""
    if training.form != other.form:
        return [f"{flag} has {_FORMS[other.form]}, and training_data {_FORMS[training.form]}"]
    found = {column.name: column for column in other.columns}
    told = []
    for column in training.columns:
        here = found.get(column.name)
        if here is None:
            told.append(f'{flag} has no column "{column.name}", and training_data has one')
        elif here != column:
            told.append(
                f'column "{column.name}" is {here.type} in {flag}, and {column.type} in training_data'
            )
    return told


def _begun(given: str, flag: str, params: str, tell: Callable[[str], None], *, is_quick: bool) -> Listed:
    """Return the records that a job begins with whose data grows; the place is kept with them."""
    place = absolute_names(given)
    listed = list_files(settled_files(place), place, flag, params, tell, is_quick=is_quick)
    return replace(listed, source=msgspec.structs.replace(listed.source, origin=place))


def has_custom_reader(config: JobConfig) -> bool:
    """Whether the model reads its data itself: it defines `custom_data_reader`, and no `reader_type` is named.

    The module is not imported: its syntax tree is looked at.  An analysis has no model.
    """
    if config.purpose == "analysis":
        return False
    if parse_params(config.data_reader_params).reader_type:
        return False
    name: str = getattr(config, _FLAG)
    if name != _FLAG:
        return True
    try:
        model = locate_model(config)
        place = locate_attribute(config, _FLAG, model)
        return (place.symbol or "") in read_symbols(Path(place.path)).names
    except (EdlzError, SyntaxError, OSError, ValueError):
        return False  # whoever loads the module says what is wrong with it
