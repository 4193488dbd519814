"""`edlz zoo`: the commands around the model zoo."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from edlz.client.commands.zoo_images import build, init, push
from edlz.client.screen.long_work import Advance, long_work
from edlz.model_zoo.dataset_names import DATASETS
from edlz.model_zoo.datasets import DatasetError, convert
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.errors import ConfigError, DataError

__all__ = ["data", "zoo"]

zoo = typer.Typer(help="The model zoo.", add_completion=False)


@zoo.callback()
def _group() -> None:
    """The model zoo: models that run as they are, and their data."""


for _command in (init, build, push):
    zoo.command()(_command)


def _watched(name: str) -> Callable[[int], AbstractContextManager[Advance]]:
    return lambda records: long_work(f"converting {name}", noun="record", total=records)


@zoo.command()
def data(
    name: Annotated[str, typer.Argument(help=" | ".join(DATASETS), autocompletion=lambda: list(DATASETS))],
    output: Annotated[Path, typer.Argument(help="folder that the files are written to")],
    source: Annotated[Path | None, typer.Option(help="folder of the published files")] = None,
    records: Annotated[int | None, typer.Option(help="criteo-generated: how many made-up records")] = None,
    seed: Annotated[int | None, typer.Option(help="criteo-generated: which ones")] = None,
) -> None:
    """Write example data as files of RecordIO or CSV."""
    if name not in DATASETS:
        near = did_you_mean(nearest(name, DATASETS))
        raise ConfigError(f'no data set "{name}"', near or f"there are: {', '.join(DATASETS)}")
    options = {key: value for key, value in {"records": records, "seed": seed}.items() if value is not None}
    try:
        done = convert(name, source, output, watch=_watched(name), **options)
    except DatasetError as e:
        raise DataError(e.message, e.help) from e
    word = "were there already" if done.was_there else "written"
    print(f"{output}/train  {done.train_records:,} records {word}")
    print(f"{output}/test   {done.test_records:,} records {word}")
    print(f"from {done.origin}")
