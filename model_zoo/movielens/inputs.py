"""What becomes of a MovieLens record: one matrix of ids, for single-valued fields and genres alike.

Fields: user, movie, year, the genres as one combination, the same combination, decade, year and day of
rating for each user; and once for each genre: genre, user x genre, user x genre x decade.  They are more than 100,000
distinct ids for ml-latest-small, whose users and movies are 10,000.
"""

from typing import Any

import tensorflow as tf

from edlz.api.feeds import batched
from edlz.model_zoo.blocks.feeds import parse_examples
from edlz.model_zoo.blocks.ids import crossed_ids, field_ids, text_values

__all__ = ["GENRE_FIELDS", "MOST_GENRES", "SINGLE_FIELDS", "feed"]

SINGLE_FIELDS, GENRE_FIELDS = 8, 3
MOST_GENRES = 10
"""Of a movie; MovieLens has no movie with more, and more are left out."""

_SCHEMA = {
    **{name: tf.io.FixedLenFeature([], tf.int64) for name in ("user", "movie", "year", "timestamp")},
    "genres": tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True, default_value=""),
}
_DAY_S = 86_400


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of serialised Examples (see `converter`) into inputs and label, or inputs alone to predict.

    Inputs are `ids`, (8 + 3 * 10,) int64, and `has_genre`, (10,) float32: 1 for a genre, 0 for filling.
    """
    return parse_examples(dataset, mode, _SCHEMA, _features)


def _features(parsed: dict[str, Any]) -> dict[str, Any]:
    user, movie, year = parsed["user"], parsed["movie"], parsed["year"]
    decade, day = year // 10, parsed["timestamp"] // _DAY_S
    genres = _filled(parsed["genres"])
    has_genre = tf.cast(tf.not_equal(genres, ""), tf.float32)
    combination = text_values(tf.strings.reduce_join(genres, axis=1, separator="|"))
    single = tf.stack([user, movie, year, combination], axis=1)
    of_user = [
        crossed_ids(field, user, value) for field, value in enumerate((combination, decade, year, day), 4)
    ]
    genre, users, decades = text_values(genres), user[:, tf.newaxis], decade[:, tf.newaxis]
    ids = [
        field_ids(single),
        tf.stack(of_user, axis=1),
        crossed_ids(8, genre),
        crossed_ids(9, users, genre),
        crossed_ids(10, users, genre, decades),
    ]
    return {"ids": tf.concat(ids, axis=1), "has_genre": has_genre}


def _filled(genres: Any) -> Any:
    """Return texts (n, 10) from those of (n, any number); "" fills."""
    genres = genres[:, :MOST_GENRES]
    genres = tf.pad(genres, [[0, 0], [0, MOST_GENRES - tf.shape(genres)[1]]], constant_values="")
    return tf.ensure_shape(genres, [None, MOST_GENRES])
