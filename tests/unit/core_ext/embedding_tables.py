"""Embedding tables beside their twins, steps for them and awkward ids: what the tests of tables share."""

import numpy as np

from edlz.core_ext import table_numpy
from edlz.core_ext.initializers import Initializer
from edlz.core_ext.steps import Kind, Step
from edlz.core_ext.table import EmbeddingTable

SMALLEST, LARGEST = -(2**63), 2**63 - 1
NORMAL = Initializer("normal", 0.0, 1.0)

# Elements of each slot in units of the row's dimension; 0: one element a row.
SLOTS = {
    Kind.SGD: (),
    Kind.MOMENTUM: (1,),
    Kind.NESTEROV: (1,),
    Kind.ADAM: (1, 1),
    Kind.AMSGRAD: (1, 1, 1),
    Kind.ADAGRAD: (1,),
    Kind.ROWWISE_ADAGRAD: (0,),
    Kind.RMSPROP: (1,),
    Kind.RMSPROP_MOMENTUM: (1, 1),
    Kind.RMSPROP_CENTERED: (1, 1),
    Kind.RMSPROP_CENTERED_MOMENTUM: (1, 1, 1),
    Kind.ADADELTA: (1, 1),
    Kind.ADAMAX: (1, 1),
    Kind.NADAM: (1, 1),
    Kind.FTRL: (1, 1),
    Kind.LION: (1,),
}
SCALARS = (0.125, 0.9, 0.1, 0.2, 0.75, 0.6, 0.3, 0.7, 0.4)


def packed(kind, decay=0.0):
    return Step(kind=kind, decay=decay, scalars=SCALARS).packed


def slots_of(kind, dim):
    """Slots whose initial values, 1 and less, lead to no root of a negative number: the bits of NaN may differ."""
    return [(max(1, size * dim), 0.5**place) for place, size in enumerate(SLOTS[kind])]


def twins(kind=Kind.SGD, dim=4, initializer=NORMAL, seed=1):
    arguments = (dim, slots_of(kind, dim), initializer, seed)
    return EmbeddingTable(*arguments), table_numpy.EmbeddingTable(*arguments)


def int64s(ids):
    return np.array(ids, np.int64)


def bits(array):
    return array.view(np.uint32).tolist()


def gradients_for(ids, dim, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((len(ids), dim)).astype(np.float32)


def rows_of(source):
    """Return all rows of an image by id, as bits."""
    rows = np.empty((source.row_count, source.width), np.float32)
    source.read(0, source.row_count, rows.reshape(-1))
    return dict(zip(source.ids.tolist(), bits(rows), strict=True))


def unmix64(value):
    """Return what `mix64` turns into `value`."""
    mask = 2**64 - 1
    z = value ^ (value >> 31) ^ (value >> 62)
    z = z * pow(0x94D049BB133111EB, -1, 2**64) & mask
    z ^= (z >> 27) ^ (z >> 54)
    z = z * pow(0xBF58476D1CE4E5B9, -1, 2**64) & mask
    z ^= (z >> 30) ^ (z >> 60)
    return (z - 0x9E3779B97F4A7C15) & mask


def id_with_hash(value):
    row_id = unmix64(value)
    return row_id - 2**64 if row_id >= 2**63 else row_id


# Ids that all want the first, and the last, bucket, whatever the size of the index: it is full and overflows, at
# the end into the first again.  Beside them those at the ends of the range and small ones, 0 included.
CROWDED = [id_with_hash(hash_) for n in range(60) for hash_ in (n, 2**64 - 1 - n)]
