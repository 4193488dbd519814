"""What becomes of a row of Adult: scaled numbers, and ids of categories, of bins and of their crosses.

`fnlwgt` is left out: it is a weight of the survey, not a trait of the person.
"""

from typing import Any

import tensorflow as tf

from edlz.model_zoo.blocks.ids import crossed_ids, field_ids, text_values

__all__ = ["CROSSES", "FIELDS", "NUMBERS", "SCHEMA", "VOCABULARIES", "features", "features_and_crosses"]

_TEXTS = (
    "workclass",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native_country",
)
_NUMBERS = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
_BINS = {
    "age": (18.0, 22.0, 25.0, 28.0, 31.0, 34.0, 37.0, 41.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0),
    "hours_per_week": (15.0, 25.0, 35.0, 39.0, 40.5, 45.0, 50.0, 55.0, 60.0),
    "capital_gain": (1.0, 3_000.0, 4_500.0, 5_100.0, 7_000.0, 10_000.0, 20_000.0),
    "capital_loss": (1.0, 1_500.0, 1_800.0, 1_980.0, 2_200.0, 2_450.0),
}
_CROSSES = (
    ("education", "occupation"),
    ("education", "occupation", "age"),
    ("marital_status", "age"),
    ("relationship", "education"),
    ("relationship", "occupation"),
    ("workclass", "occupation"),
    ("relationship", "hours_per_week"),
    ("native_country", "occupation"),
    ("sex", "relationship", "age"),
)

FIELDS, CROSSES, NUMBERS = len(_TEXTS) + len(_BINS), len(_CROSSES), len(_NUMBERS)

SCHEMA = {
    **{name: tf.io.FixedLenFeature([], tf.string) for name in _TEXTS},
    **{name: tf.io.FixedLenFeature([], tf.float32) for name in _NUMBERS},
}


def features(parsed: dict[str, Any]) -> dict[str, Any]:
    """Return `ids`, (n, 12) int64, of categories and bins, and `numbers`, (n, 5), of n parsed rows."""
    ids = field_ids(tf.stack(list(_values(parsed).values()), axis=1))
    return {"ids": ids, "numbers": _scaled(parsed)}


def features_and_crosses(parsed: dict[str, Any]) -> dict[str, Any]:
    """Return the same, and `crosses`, (n, 9) int64."""
    values = _values(parsed)
    crosses = [
        crossed_ids(FIELDS + number, *(values[name] for name in names))
        for number, names in enumerate(_CROSSES)
    ]
    return {**features(parsed), "crosses": tf.stack(crosses, axis=1)}


def _values(parsed: dict[str, Any]) -> dict[str, Any]:
    """Return a number for each category, and the bin of some numbers: (n,) int64 each."""
    values = {name: text_values(parsed[name]) for name in _TEXTS}
    return values | {name: _bin(parsed[name], bounds) for name, bounds in _BINS.items()}


def _bin(numbers: Any, bounds: tuple[float, ...]) -> Any:
    """Return how many of the bounds a number reaches."""
    return tf.searchsorted(tf.constant(bounds), numbers, side="right", out_type=tf.int64)


def _scaled(parsed: dict[str, Any]) -> Any:
    columns = (
        (parsed["age"] - 38.0) / 14.0,
        (parsed["education_num"] - 10.0) / 2.5,
        tf.math.log1p(parsed["capital_gain"]) / 9.0,
        tf.math.log1p(parsed["capital_loss"]) / 7.5,
        (parsed["hours_per_week"] - 40.0) / 12.0,
    )
    return tf.stack(columns, axis=1)


VOCABULARIES = {
    "workclass": (
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked"
    ),
    "education": (
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th"
        " Doctorate 5th-6th Preschool"
    ),
    "marital_status": (
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
    ),
    "occupation": (
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners"
        " Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces"
    ),
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
}
"""By column; words with blanks between them."""
