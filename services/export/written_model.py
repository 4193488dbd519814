"""Writing the files of a model in all formats that are asked for; importing this module imports TensorFlow."""

from pathlib import Path

from edlz.services.configuration.job_config import JobConfig
from edlz.services.export.keras_file import own_classes, refuse_unfit, write_keras_file
from edlz.services.export.loaded_model import LoadedModel
from edlz.services.export.memory_tables import keras_model
from edlz.services.export.order import Export, Written
from edlz.services.export.safetensors_files import write_safetensors
from edlz.services.export.saved_model import write_saved_model
from edlz.services.protocol.plan import Plan
from edlz.services.storage.whole_cut import WholeCut

__all__ = ["keras_model", "write_model"]

_SCRATCH = "scratch"


def write_model(config: JobConfig, plan: Plan, cut: WholeCut, export: Export, staged: Path) -> Written:
    """Build the job's model, give it the values of a cut, and write it to a folder that nobody else sees yet."""
    scratch, unknown_ids = staged / _SCRATCH, export.unknown_ids or "initial"
    scratch.mkdir()
    model = LoadedModel(config, plan, cut, export.on_progress)
    signatures: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    if "keras" in export.formats:
        refuse_unfit(model, export.unknown_ids)
        needed = tuple(own_classes(model))
    if "saved_model" in export.formats:
        signatures = write_saved_model(model, staged, scratch, unknown_ids)
    if "safetensors" in export.formats:
        folder = staged / "safetensors"
        folder.mkdir()
        write_safetensors(model, folder, scratch)
    keras_file = staged / (export.output.name if export.is_file else "model.keras")
    if "keras" in export.formats:  # changes the model's layers
        write_keras_file(model, keras_file, scratch, export.unknown_ids)
    scratch.rmdir()
    tables = tuple((content.path, content.row_count, content.dim) for content in model.tables)
    return Written(keras_file=keras_file, tables=tables, signatures=signatures, needed_classes=needed)
