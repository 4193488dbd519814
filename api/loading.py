"""Trained models in Python.

This folder knows no jobs and no files of theirs, so what does the work is found as a plug-in: an entry point of the
group `edlz.api`, which the package registers.
"""

import os
from importlib.metadata import entry_points
from typing import Any

__all__ = ["load"]

GROUP, NAME = "edlz.api", "load"


def load(source: str | os.PathLike[str], unknown_ids: str = "initial", **flags: str) -> Any:
    """Return the Keras model of a checkpoint or of a job of this machine, with what it has learnt.

    The model is built by the code that the job was trained with, and has the checkpoint's values.  Large
    `keras.layers.Embedding`s have their weights again.  An `edlz.api.Embedding` looks its rows up in memory; they are
    no weights of the model, and are not trained further.

    The model is built as in the job: Keras' session is cleared before, and the random seeds of Keras, NumPy and Python
    are set.  So load first, and build other models then.

    Parameters
    ----------
    source : str or path
        A folder of checkpoints (its newest good one), one `version-<V>` in it, or the name of a job: what it
        ended with, else its newest checkpoint.
    unknown_ids : {"initial", "zeros", "mean"}
        What an `edlz.api.Embedding` gives for ids that were never trained: the value that they would begin with, as
        in training and evaluation; zeros; or the mean of all rows.
    **flags : str
        Where the model's code or data lie now, if not where they were: `model_zoo`, `model_file`, `model_def`,
        `model_params`, `training_data` (some records, to see what `feed` yields), `statistics`.

    Returns
    -------
    keras.Model
        Not compiled.

    Raises
    ------
    edlz.services.errors.EdlzError
        If there is no good checkpoint, or the model cannot be built; its message says what to do.

    Examples
    --------
    >>> model = load("census")
    >>> model.predict(features)
    """
    return _plug_in()(source, unknown_ids=unknown_ids, **flags)


def _plug_in() -> Any:
    found = entry_points(group=GROUP, name=NAME)
    if not found:
        raise RuntimeError(
            "edlz is not installed whole: its entry points are missing; pip install edlz again"
        )
    (entry,) = found
    return entry.load()
