"""`edlz export`: a trained model as files that others run, without edlz."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edlz.client.arguments.completion import complete_checkpoint
from edlz.client.job_files.model_source import model_source
from edlz.client.local.start_up_noise import without_start_up_noise
from edlz.client.screen.long_work import Advance, long_work
from edlz.client.screen.wording import size
from edlz.services.configuration.export_flags import Format, chosen_formats, export_problems
from edlz.services.configuration.problems import InvalidConfigError
from edlz.services.export.exporter import Export, export_model

if TYPE_CHECKING:
    from edlz.client.job_files.model_source import ModelSource
    from edlz.services.export.exporter import Exported
    from edlz.services.storage.whole_cut import WholeCut

__all__ = ["export"]

_Source = Annotated[
    str,
    typer.Argument(
        metavar="JOB|CHECKPOINT",
        help="a local job, a checkpoint folder, or one version in it",
        autocompletion=complete_checkpoint,
    ),
]
_Output = Annotated[str, typer.Argument(metavar="OUTPUT", help="a folder, or a file m.keras")]


def _flag(name: str, metavar: str, text: str) -> object:
    return typer.Option(f"--{name}", metavar=metavar, help=text)


def export(
    source: _Source,
    output: _Output,
    unknown_ids: Annotated[str, _flag("unknown_ids", "WHAT", "initial | zeros | mean")] = "",
    output_format: Annotated[str, _flag("output_format", "NAMES", "saved_model,keras,safetensors")] = "",
    model_def: Annotated[str, _flag("model_def", "NAME", "in place of the job's")] = "",
    model_zoo: Annotated[str, _flag("model_zoo", "DIR", "where models lie now")] = "",
    model_file: Annotated[str, _flag("model_file", "FILE", "in place of --model_def")] = "",
    model_params: Annotated[str, _flag("model_params", "K=V;K=V", "in place of the job's")] = "",
    training_data: Annotated[str, _flag("training_data", "PATH", "records of the same form")] = "",
    statistics: Annotated[str, _flag("statistics", "FILE", "where statistics.json is now")] = "",
    config: Annotated[str, _flag("config", "FILE", "job.yaml, of a checkpoint without settings")] = "",
) -> None:
    """Write a trained model for others to run: SavedModel, Keras or safetensors."""
    if problems := [problem for _, problem in export_problems(output, output_format, unknown_ids)]:
        raise InvalidConfigError(problems)
    formats = chosen_formats(output, output_format)
    given = {
        "model_def": model_def,
        "model_zoo": model_zoo,
        "model_file": model_file,
        "model_params": model_params,
        "training_data": training_data,
        "statistics": statistics,
        "config": config,
    }
    with long_work(f"looking at {source}"):  # a checkpoint is read to its last byte
        found = model_source(source, {name: value for name, value in given.items() if value})
    with found.open() as cut, _watched(found.job, cut, formats) as advance, without_start_up_noise():
        wanted = Export(
            output=Path(output),
            formats=formats,
            unknown_ids=unknown_ids or None,  # type: ignore[arg-type]  # checked above
            about={"job": found.job, "run": found.run},
            on_progress=advance,
        )
        done = export_model(found.config, found.plan, cut, wanted)
        title = f"{found.job} v{cut.version}, {cut.head.ledger.minibatches:,} minibatches"
    _print(found, done, formats, title, unknown_ids)


def _watched(job: str, cut: "WholeCut", formats: tuple[Format, ...]) -> AbstractContextManager[Advance]:
    rows = sum(cut.row_count(place) for place in range(len(cut.head.tables)))
    return long_work(f"exporting {job} v{cut.version}", noun="row", total=rows * len(formats))


def _print(
    found: "ModelSource", done: "Exported", formats: tuple[Format, ...], title: str, unknown_ids: str
) -> None:
    print(f"Exported  {done.place}  {size(done.size_bytes)}")
    print(f"  from      {found.where}: {title}")
    for path, rows, dim in done.tables:
        print(f"  table     {path}: {rows:,} rows of {dim}")
    if done.signatures:
        print(f"  call      signatures {', '.join(done.signatures)}; serve() in Python")
    if done.tables and "keras" in formats and not unknown_ids:
        print("  note      in the .keras file all ids without a row share one: the mean of initial values")
    if done.needed_classes:
        print(f"  note      to load the .keras file, Python needs {', '.join(done.needed_classes)}")
