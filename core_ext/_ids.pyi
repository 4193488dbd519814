from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

def partition_of(ids: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int32]: ...
def group_ids(
    ids: npt.NDArray[np.int64], partitions: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]: ...
def sum_rows(
    gradients: npt.NDArray[np.float32], places: npt.NDArray[np.int32], rows: int
) -> npt.NDArray[np.float32]: ...
def merge_rows(
    parts: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]], divisor: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]: ...
