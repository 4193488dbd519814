"""A layer that numbers categories by a list of them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from edlz.api.preprocessing.column_layer import ValueLayer

__all__ = ["IndexLookup"]

_MOST_NAMED = 3


@keras.saving.register_keras_serializable(package="edlz")
class IndexLookup(ValueLayer):
    """Numbers values by their place in a vocabulary, from 0 on; unknown ones come behind it.

    (`keras.layers.StringLookup` puts unknown ones *before* the vocabulary.)

    Parameters
    ----------
    vocabulary : sequence of str or int, or path
        The known values, without repetition.  A path is of a text file with one of them a line, read once: the
        layer's configuration, hence a saved model, has the values.
    num_oov_tokens : int
        Unknown values share this many numbers, by their hash: `len(vocabulary)` and those after it.  With 0 all
        of them become -1.

    Raises
    ------
    ValueError
        If the vocabulary is empty, has a value twice, or mixes texts and integers.
    OSError
        If its file cannot be read.

    Examples
    --------
    >>> IndexLookup(["a", "b"])(tf.constant([["b", "a", "z"]])).numpy().tolist()
    [[1, 0, 2]]
    """

    def __init__(
        self,
        vocabulary: Sequence[str | int] | str | Path,
        num_oov_tokens: int = 1,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        if num_oov_tokens < 0:
            raise ValueError(f"{self.name}: num_oov_tokens={num_oov_tokens}, and must not be below 0")
        is_path = isinstance(vocabulary, str | Path)
        self.vocabulary = _lines(Path(vocabulary)) if is_path else list(vocabulary)  # type: ignore[arg-type]
        self.num_oov_tokens = int(num_oov_tokens)
        self._key_type = _type_of_all(self.name, self.vocabulary)
        with tf.init_scope():  # a table of the process, also where the layer is made within a function
            keys = tf.constant(self.vocabulary, self._key_type)
            places = tf.range(len(self.vocabulary), dtype=tf.int64)
            initializer = tf.lookup.KeyValueTensorInitializer(keys, places)
            self._table = tf.lookup.StaticHashTable(initializer, default_value=-1)

    def vocabulary_size(self) -> int:
        """Return how many different numbers there are: values of the vocabulary, and those for unknown ones."""
        return len(self.vocabulary) + self.num_oov_tokens

    def _type_of(self, dtype: str) -> str:
        return "int64"

    def _mapped(self, values: tf.Tensor) -> tf.Tensor:
        if (values.dtype == tf.string) != (self._key_type == tf.string):
            known = "texts" if self._key_type == tf.string else "integers"
            raise TypeError(f"{self.name} got values of type {values.dtype.name}; its vocabulary has {known}")
        if not (values.dtype == tf.string or values.dtype.is_integer):
            raise TypeError(f"{self.name} got values of type {values.dtype.name}: round them first")
        keys = tf.cast(values, self._key_type)
        places = self._table.lookup(keys)
        if not self.num_oov_tokens:
            return places
        texts = keys if self._key_type == tf.string else tf.strings.as_string(keys)
        unknown = len(self.vocabulary) + tf.strings.to_hash_bucket_fast(texts, self.num_oov_tokens)
        return tf.where(places < 0, unknown, places)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary": self.vocabulary,
            "num_oov_tokens": self.num_oov_tokens,
        }


def _lines(path: Path) -> list[str | int]:
    return list(path.read_text(encoding="utf-8").splitlines())


def _type_of_all(name: str, vocabulary: list[str | int]) -> tf.DType:
    """Return the type of a vocabulary's values, having checked them."""
    if not vocabulary:
        raise ValueError(f"{name}: the vocabulary is empty")
    twice = [value for value, count in Counter(vocabulary).items() if count > 1]
    if twice:
        more = ", …" if len(twice) > _MOST_NAMED else ""
        named = ", ".join(map(repr, twice[:_MOST_NAMED]))
        raise ValueError(f"{name}: the vocabulary has more than once: {named}{more}")
    if all(isinstance(value, str) for value in vocabulary):
        return tf.string
    if all(isinstance(value, int) and not isinstance(value, bool) for value in vocabulary):
        return tf.int64
    kinds = sorted({type(value).__name__ for value in vocabulary})
    raise ValueError(f"{name}: a vocabulary has either texts or integers, and not {' and '.join(kinds)}")
