from typing import Any

import numpy.typing as npt

from edlz.core_ext.columns_numpy import ArrowData

def numbers(batch: ArrowData) -> list[npt.NDArray[Any] | None]: ...
def number(values: ArrowData) -> npt.NDArray[Any] | None: ...
