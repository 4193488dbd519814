"""What `edlz analyze` has found out about a column, for models: to normalise numbers, to number words.

The file that `--statistics=statistics.json` names is part of a job's plan, so every worker builds its model from the same
figures.  Where it says nothing, environment variables do that SQLFlow's analysis sets for ElasticDL (`_age_avg`), and
then what the model gives as a default.
"""

import difflib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["ColumnStatistics", "statistics", "use_statistics"]

_T = TypeVar("_T")

_DEFAULTS = ("min", "max", "mean", "variance", "stddev", "distinct", "boundaries", "vocabulary")
_columns: Mapping[str, Mapping[str, Any]] = {}  # of the job that this process works for


class ColumnStatistics:
    """The figures of one column; each is looked up when it is asked for.

    Parameters
    ----------
    column : str
    figures : mapping, optional
        What `statistics.json` says.
    defaults : mapping
        What the model says, for what is found nowhere.
    """

    def __init__(self, column: str, figures: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> None:
        self.column = column
        self._figures: Mapping[str, Any] = figures or {}
        self._defaults = dict(defaults)
        if "stddev" in defaults:
            self._defaults.setdefault("variance", defaults["stddev"] ** 2)
        elif "variance" in defaults:
            self._defaults["stddev"] = math.sqrt(defaults["variance"])

    @property
    def count(self) -> int:
        """How many values there are."""
        return int(self._found("count"))

    @property
    def missing(self) -> int:
        """How many records have none."""
        return int(self._found("missing"))

    @property
    def min(self) -> float:
        return float(self._found("min", "min", float))

    @property
    def max(self) -> float:
        return float(self._found("max", "max", float))

    @property
    def mean(self) -> float:
        return float(self._found("mean", "avg", float))

    @property
    def variance(self) -> float:
        """The variance of a sample: divided by one less than there are values."""
        return float(self._found("variance", "stddev", lambda text: float(text) ** 2))

    @property
    def stddev(self) -> float:
        """The square root of the variance."""
        if self._has("stddev") or not self._has("variance"):
            return float(self._found("stddev", "stddev", float))
        return math.sqrt(self.variance)

    @property
    def distinct(self) -> int:
        """How many different values there are."""
        return int(self._found("distinct", "distinct_count", int))

    @property
    def vocabulary(self) -> list[Any]:
        """Texts or whole numbers, the most frequent first."""
        return list(self._found("vocabulary", "vocab", _words))

    def frequent(self, count: int) -> list[Any]:
        """Return the words of the vocabulary that occur so often at least."""
        frequencies: Sequence[int] = self._found("frequencies")
        return [word for word, found in zip(self.vocabulary, frequencies, strict=True) if found >= count]

    def quantile(self, share: float) -> float:
        """Return the value below which this share of all values lies, from 0 to 1: to the nearest percent."""
        quantiles: Sequence[float] = self._found("quantiles")
        return float(quantiles[round(share * (len(quantiles) - 1))])

    def boundaries(self, buckets: int = 10) -> list[float]:
        """Return what lies between buckets that hold as many values each; fewer where values are alike.

        ElasticDL's variable and the default say which they are, for whatever number.
        """
        if self._figures.get("quantiles"):
            return sorted({self.quantile(place / buckets) for place in range(1, buckets)})
        return list(self._found("boundaries", "boundaries", _numbers))

    def _has(self, name: str) -> bool:
        return self._figures.get(name) not in (None, [])

    def _found(self, name: str, variable: str = "", read: Callable[[str], _T] | None = None) -> Any:
        """Return a figure: from the file, the variable, or the defaults."""
        if self._has(name):
            return self._figures[name]
        text = os.environ.get(f"_{self.column}_{variable}") if variable else None
        if text is not None and read is not None:
            try:
                return read(text)
            except ValueError as error:
                raise ValueError(f"_{self.column}_{variable}={text!r}: {error}") from error
        if name in self._defaults:
            return self._defaults[name]
        raise LookupError(self._missing(name, variable))

    def _missing(self, name: str, variable: str) -> str:
        """Say what is not known, and what to do."""
        if self._figures:
            text = f'the statistics of column "{self.column}" have no {name}'
        elif _columns:
            near = difflib.get_close_matches(self.column, _columns, 1)
            meant = f'; did you mean "{near[0]}"?' if near else ""
            text = f'there are no statistics of a column "{self.column}"{meant}'
        else:
            text = f'there are no statistics, of which column "{self.column}" should have {name}'
        ways = ["edlz analyze DATA, then --statistics=…/statistics.json"]
        ways += [f"set _{self.column}_{variable}"] if variable else []
        ways += [f'statistics("{self.column}", {name}=…)'] if name in _DEFAULTS else []
        return f"{text}: {', or '.join(ways)}"


def statistics(column: str, **defaults: Any) -> ColumnStatistics:
    """Return what is known of a column of the job's data.

    Parameters
    ----------
    column : str
    **defaults
        `min`, `max`, `mean`, `variance`, `stddev`, `distinct`, `boundaries`, `vocabulary`: for what neither
        `--statistics` nor the environment says.

    Raises
    ------
    TypeError
        If a default is of no such figure.
    LookupError
        From a figure that is found nowhere.

    Examples
    --------
    >>> age = statistics("age", mean=40.0, stddev=10.0)
    >>> keras.layers.Normalization(mean=age.mean, variance=age.variance)
    """
    for name in defaults:
        if name not in _DEFAULTS:
            raise TypeError(f"statistics() takes no default of {name}: {', '.join(_DEFAULTS)}")
    return ColumnStatistics(column, _columns.get(column), defaults)


def use_statistics(columns: Mapping[str, Mapping[str, Any]]) -> None:
    """Have `statistics` know these columns from now on; called before a job's model is built."""
    global _columns
    _columns = columns


def _words(text: str) -> list[str]:
    """Return the words in a variable: with commas between them, or the lines of the file that it names."""
    if os.path.isfile(text):  # many words are more than a path may be
        return Path(text).read_text(encoding="utf-8").splitlines()
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",") if word.strip()]
