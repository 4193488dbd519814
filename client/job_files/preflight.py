"""What `edlz train`, `evaluate` and `predict` check before anything runs: the model's code and the data, all mistakes at once.

Neither TensorFlow nor the user's module is imported: names are found in its syntax tree, records are
counted by the headers of their chunks.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edlz.services.configuration.checks import idle_workers
from edlz.services.configuration.export_flags import is_keras_file
from edlz.services.configuration.flags import DATA_FLAGS
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import Problem
from edlz.services.errors import EdlzError
from edlz.services.inputs.job_data import has_custom_reader, list_job_data
from edlz.services.inputs.listing import Listed
from edlz.services.inputs.model_location import (
    FEED_NAMES,
    MODEL_NAMES,
    ModelLocation,
    locate_attribute,
    locate_model,
)
from edlz.services.inputs.model_symbols import ModuleSymbols, read_symbols
from edlz.services.inputs.paths import nearest_path
from edlz.services.predictions.formats import check_format
from edlz.services.predictions.kinds import STATISTICS
from edlz.services.predictions.output import check_free
from edlz.services.statistics.kept import pack
from edlz.services.storage.checkpoint_records import version_of
from edlz.services.storage.versions import list_versions, look_at

__all__ = ["Preflight", "check_job", "check_visible_model"]

_SIGNATURES = {
    "loss": "(labels, predictions)",
    "optimizer": "()",
    "feed": "(dataset, mode, metadata)",
    "custom_model": "()",
}
_A_CHECKPOINT = "name a checkpoint folder, or one of its version-<V>: edlz checkpoint ls FOLDER"
_CONTRACT = (*MODEL_NAMES, "loss", "optimizer", *FEED_NAMES, "eval_metrics_fn")


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found.

    Attributes
    ----------
    records, tasks : int, optional
        Of the data that the job works on, tasks as many as in an epoch; None if they cannot be counted.
    """

    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    records: int | None = None
    tasks: int | None = None


def check_job(config: JobConfig, *, begins: bool = True) -> Preflight:
    """Check that a job can begin on this machine; or (not `begins`) that what began can go on, or be used.

    Then data that grows is not looked at: what lies there now may be anything, and the job knows what it has taken.
    """
    has_model = config.purpose != "analysis"
    errors = list(_check_model(config)) if has_model else []
    warnings = list(_warn_of_model(config)) if has_model else []
    data: Listed | None = None
    if begins or not config.watch_data:
        data_errors, data = _check_data(config, config.data, DATA_FLAGS[config.purpose], warnings)
        errors += data_errors
    if config.validation_data and config.purpose == "training":
        errors += _check_data(config, config.validation_data, "validation_data", warnings, data)[0]
    if config.statistics:
        errors += _found(lambda: pack(Path(config.statistics)))
    if config.checkpoint_dir_for_init:
        errors += _check_checkpoint(config)
    if config.output and config.purpose == "training":
        errors += _check_output(Path(config.output))
    if config.purpose == "prediction" and config.prediction_output and not config.resume:
        errors += _check_predictions(config)
    if not has_model and not config.resume:
        errors += _found(lambda: check_free(Path(config.statistics_output), config.job_name, STATISTICS))
    sizes = [shard.count for shard in data.shards] if data is not None and data.is_counted else []
    records = sum(sizes) or None
    tasks = sum(-(-size // config.records_per_task) for size in sizes) or None
    if tasks and config.num_workers <= config.grads_to_wait:  # else the flags alone say so
        idle = idle_workers(config, tasks)
        warnings += [idle] if idle else []
    return Preflight(errors, warnings, records, tasks)


def check_visible_model(config: JobConfig, *, must_be_here: bool) -> Preflight:
    """Check the model of a job that runs elsewhere, as far as it can be seen from here.

    Parameters
    ----------
    must_be_here : bool
        It goes into an image from here; else an image may hold one that nobody sees here.
    """
    if config.purpose == "analysis":
        return Preflight()
    try:
        locate_model(config)
    except EdlzError:
        if not must_be_here:
            return Preflight()
    return Preflight(list(_check_model(config)), list(_warn_of_model(config)))


def _check_model(config: JobConfig) -> Iterator[Problem]:
    try:
        model = locate_model(config)
    except EdlzError as e:
        yield Problem(e.message, e.help)
        return
    symbols = _symbols(model.path)
    if isinstance(symbols, Problem):
        yield symbols
        return
    wanted = (model.symbol,) if model.symbol else MODEL_NAMES
    missing = [] if any(name in symbols for name in wanted) else [wanted[0]]
    brings_feed = has_custom_reader(config)  # perhaps: then it need not be in the module
    for flag in ("loss", "optimizer", "feed"):
        try:
            place = locate_attribute(config, flag, model)
        except EdlzError as e:
            yield Problem(e.message, e.help)
            continue
        names = FEED_NAMES if flag == "feed" and place.symbol == "feed" else (place.symbol or "",)
        if place.path != model.path:
            yield from _check_other_module(place)
        elif not any(name in symbols for name in names) and not (flag == "feed" and brings_feed):
            missing.append(names[0])
    if missing:
        yield _missing(_module_name(config, model), symbols, missing)
    if config.purpose == "prediction":
        yield from _check_taker(config, model, symbols)


def _check_checkpoint(config: JobConfig) -> Iterator[Problem]:
    """Take a quick look at the checkpoint that the job should begin from; its bytes are the master's affair."""
    path = Path(config.checkpoint_dir_for_init)
    flag = f'checkpoint_dir_for_init "{path}"'
    if not path.is_dir():
        if path.exists():
            yield Problem(f"{flag} is no folder", _A_CHECKPOINT)
        else:
            yield Problem(f"{flag} does not exist", nearest_path(path) or _A_CHECKPOINT)
        return
    if path.resolve().is_relative_to(config.job_directory.resolve()):
        message = f'{flag} lies in the folder of job "{config.job_name}", which a new run moves aside'
        yield Problem(message, f"give this job another name: --job_name={config.job_name}-2")
        return
    found = [look_at(path)] if version_of(path) is not None else list_versions(path)
    if not found:
        yield Problem(f"{flag} holds no checkpoint", _A_CHECKPOINT)
    elif not any(info.is_good for info in found):
        yield Problem(f"{flag} holds no good checkpoint", f"edlz checkpoint verify {path}")


def _check_output(output: Path) -> Iterator[Problem]:
    """See now whether the model can be exported there at the end."""
    flag, another = f'output "{output}"', "name another place to export to"
    is_file = is_keras_file(str(output))
    if is_file and output.is_dir():
        yield Problem(f"{flag} is a folder", "a Keras file needs a name that is free, or a file's")
        return
    folder = (output.parent if is_file else output).absolute()
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        yield Problem(f"{flag}: {folder} is no folder", another)
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Problem(f"{flag}: {folder} cannot be written to by this user", another)


def _check_predictions(config: JobConfig) -> Iterator[Problem]:
    """See whether the predictions can be written, as far as that is known before they are."""
    yield from _found(lambda: check_format(config.prediction_format))
    yield from _found(lambda: check_free(Path(config.prediction_output), config.job_name))


def _found(check: Callable[[], object]) -> Iterator[Problem]:
    """Return what a check raises as what is wrong."""
    try:
        check()
    except EdlzError as e:
        yield Problem(e.message, e.help)


def _check_taker(config: JobConfig, model: ModelLocation, symbols: ModuleSymbols) -> Iterator[Problem]:
    """See that somebody takes the predictions."""
    flag = "prediction_outputs_processor"
    name, is_default = getattr(config, flag), getattr(config, flag) == "PredictionOutputsProcessor"
    try:
        place = locate_attribute(config, flag, model)
    except EdlzError as e:
        yield Problem(e.message, e.help)
        return
    if place.path != model.path:
        yield from _check_other_module(place)
    elif name in symbols:
        return
    elif not is_default:
        yield _missing(_module_name(config, model), symbols, [name])
    elif not config.prediction_output:
        yield Problem(
            "--prediction_output is missing, and the model defines no PredictionOutputsProcessor",
            "--prediction_output=DIR writes the predictions into files",
        )


def _check_other_module(place: ModelLocation) -> Iterator[Problem]:
    symbols = _symbols(place.path)
    if isinstance(symbols, Problem):
        yield symbols
    elif place.symbol is not None and place.symbol not in symbols:
        yield _missing(str(place.path), symbols, [place.symbol])


def _symbols(path: Path) -> ModuleSymbols | Problem:
    try:
        return read_symbols(path)
    except SyntaxError as e:
        line = f": {e.text.strip()}" if e.text else ""
        return Problem(
            f"{path}:{e.lineno}: {e.msg}{line}", "correct that line: the file must be Python that imports"
        )
    except (OSError, ValueError) as e:
        return Problem(f"{path} cannot be read: {getattr(e, 'strerror', None) or e}")


def _missing(module: str, symbols: ModuleSymbols, missing: list[str]) -> Problem:
    wanted = [name + _SIGNATURES.get(name, "") for name in missing]
    names = " and no ".join(wanted)
    defined = [name for name in _CONTRACT if name in symbols]
    others = [name for name in symbols.names if not name.startswith("_")]
    return Problem(f"{module} defines no {names}", f"it defines: {', '.join(defined or others) or 'nothing'}")


def _module_name(config: JobConfig, model: ModelLocation) -> str:
    """Return the module as the user wrote it: the dotted name, or the file."""
    return config.model_def.rpartition(".")[0] if model.symbol else str(model.path)


def _warn_of_model(config: JobConfig) -> Iterator[Problem]:
    try:
        symbols = read_symbols(locate_model(config).path)
    except (EdlzError, SyntaxError, OSError, ValueError):
        return  # reported as an error already
    is_default = config.eval_metrics_fn == "eval_metrics_fn"
    if config.validation_data and is_default and "eval_metrics_fn" not in symbols:
        yield Problem("the model defines no eval_metrics_fn(): evaluation has nothing but the loss to show")


def _check_data(
    config: JobConfig, given: str, flag: str, warnings: list[Problem], training: Listed | None = None
) -> tuple[list[Problem], Listed | None]:
    """Return what is wrong with the data, and the records; add what is left out to the warnings.

    A reader of the model's own is not asked here: it would have to be imported.
    """

    def tell(text: str) -> None:
        warnings.append(Problem(text))

    try:
        if has_custom_reader(config):
            return [], None
        return [], list_job_data(config, given, flag, training, tell, is_quick=True)
    except EdlzError as e:
        return [Problem(e.message, e.help)], None
    except OSError as e:
        return [Problem(f'{flag} "{given}" cannot be read: {e.strerror or e}')], None
