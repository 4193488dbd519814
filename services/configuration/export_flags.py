"""The flags that say how a model comes out: of `edlz train` at the end of a job, and of `edlz export`."""

from collections.abc import Iterator
from typing import Literal

from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import Problem

__all__ = [
    "FORMATS",
    "UNKNOWN_IDS",
    "Format",
    "UnknownIds",
    "checkpoints_beside",
    "chosen_formats",
    "export_problems",
    "is_keras_file",
]

Format = Literal["saved_model", "keras", "safetensors"]
UnknownIds = Literal["initial", "zeros", "mean"]
"""What ids get that were never trained: their initial value, zeros, or the mean of the trained rows."""

FORMATS: tuple[Format, ...] = ("saved_model", "keras", "safetensors")
UNKNOWN_IDS: tuple[UnknownIds, ...] = ("initial", "zeros", "mean")
_KERAS_SUFFIX = ".keras"


def is_keras_file(output: str) -> bool:
    """Whether a place is that of a Keras file, not of a folder of exports."""
    return output.endswith(_KERAS_SUFFIX)


def checkpoints_beside(output: str) -> str:
    """Return the folder of the checkpoint that a model is exported from, if it is to lie beside the export."""
    return f"{output}.checkpoints"


def chosen_formats(output: str, output_format: str) -> tuple[Format, ...]:
    """Return the formats that are asked for; of flags in which `export_problems` finds nothing."""
    names = _names(output_format) or (["keras"] if is_keras_file(output) else ["saved_model"])
    return tuple(name for name in dict.fromkeys(names) if name in FORMATS)


def export_problems(output: str, output_format: str, unknown_ids: str) -> Iterator[tuple[str, Problem]]:
    """Return what is wrong with each of the flags."""
    names = _names(output_format)
    wrong = [name for name in names if name not in FORMATS]
    if wrong:
        yield "output_format", _no_choice("output_format", wrong[0], FORMATS)
    if is_keras_file(output) and names not in ([], ["keras"]):
        message = f"--output_format={output_format} with {output}: a file has one format"
        yield "output_format", Problem(message, "name a folder for several")
    if unknown_ids and unknown_ids not in UNKNOWN_IDS:
        yield "unknown_ids", _no_choice("unknown_ids", unknown_ids, UNKNOWN_IDS)


def _names(output_format: str) -> list[str]:
    return [name.strip() for name in output_format.split(",")] if output_format else []


def _no_choice(flag: str, text: str, choices: tuple[str, ...]) -> Problem:
    near = did_you_mean(nearest(text, choices))
    return Problem(
        f'--{flag}="{text}" is none of {", ".join(choices)}', near or f"e.g. --{flag}={choices[0]}"
    )
