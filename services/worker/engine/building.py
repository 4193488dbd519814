"""Putting the parts of an engine together, and trying them; importing this module imports TensorFlow."""

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.protocol.plan import Plan
from edlz.services.worker.engine.assembly import Assembly
from edlz.services.worker.engine.contract.model_module import code_of
from edlz.services.worker.engine.feed.task_reader import TaskReader
from edlz.services.worker.engine.model_check import ModelCheck
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import told

__all__ = ["ModelCheck", "assemble"]


def assemble(config: JobConfig, plan: Plan, reader: TaskReader, partitions: int) -> Assembly:
    """Load the user's module, build and trace everything.

    Raises
    ------
    ModelError, DataError
        As `KerasEngine.build`.
    """
    try:
        return Assembly(config, plan, reader, partitions)
    except (EdlzError, MemoryError):
        raise
    except Exception as e:
        raise _build_error(config, e) from e


def _build_error(config: JobConfig, cause: Exception) -> Exception:
    """Return what stands for an error that the user's code did not raise directly, but a trace or a first run of it.

    Another worker would meet it as well, unless it is this one's machine that has no memory.
    """
    is_without_memory: bool = isinstance(cause, tf.errors.ResourceExhaustedError)
    if is_without_memory:
        return cause
    return code_of(config).error(cause, f"building the model raised {told(cause)}", "")
