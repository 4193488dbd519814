"""Models that a group of workers cannot train, or not well."""

from pathlib import Path

import numpy as np
import pytest

from edlz.services.errors import ConfigError, ModelError
from edlz.services.protocol.layout import Layout, Variable, VectorLayout
from edlz.services.protocol.messages import InitializerSpec, OptimizerSpec, TableSpec
from edlz.services.worker.core.computation import Built
from edlz.services.worker.member_base import (
    base_of_members,
    refuse_for_members,
    warn_of_large_embeddings,
)
from tests import builders
from tests.states import save

SGD = OptimizerSpec(name="SGD", settings={})


def built(*variables: tuple[str, tuple[int, ...]], tables: tuple[TableSpec, ...] = ()) -> Built:
    dense = VectorLayout(variables=tuple(Variable(path=path, shape=shape) for path, shape in variables))
    nothing = np.zeros(0, np.float32)
    return Built(Layout(dense=dense), SGD, nothing, nothing, np.zeros(0, np.int64), tables)


def test_rows_without_bounds_need_parameter_servers() -> None:
    table = TableSpec(path="items", dim=8, initializer=InitializerSpec(kind="constant", a=0.0), optimizer=SGD)
    with pytest.raises(ModelError, match=r"items is an edlz.api.Embedding: rows of unbounded") as raised:
        refuse_for_members(built(tables=(table,)))
    assert raised.value.help == "--distribution_strategy=ParameterServerStrategy"
    refuse_for_members(built(("dense/kernel", (8, 8))))


def test_a_checkpoint_with_rows_is_refused_by_the_name_of_their_table(tmp_path: Path) -> None:
    """Also where the model has none: an Embedding that was a table of parameter servers stays in a group's model."""
    job = builders.job(begins_from=str(save(tmp_path)))
    with pytest.raises(
        ConfigError, match="the checkpoint has rows of the embedding table table 0 ü, and rows"
    ) as raised:
        base_of_members(built(), job)
    assert raised.value.help == "--distribution_strategy=ParameterServerStrategy"


@pytest.mark.parametrize(
    ("path", "rows", "is_told"),
    [
        ("items/embeddings", 8 << 20, True),
        ("items/embeddings", 4 << 20, False),
        ("items/embeddings", (4 << 20) + 1, True),
        ("dense/kernel", 8 << 20, False),
    ],
)
def test_a_large_embedding_is_told_of(
    path: str, rows: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_large_embeddings(built((path, (rows, 16)), ("dense/bias", (8,))))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == is_told
    if is_told:
        assert f"all of its {rows:,} rows, and sends and receives {64 * rows >> 20:,} MiB or more" in told[0]
