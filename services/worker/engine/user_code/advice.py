"""What to do about errors that user code often meets: TensorFlow and Keras say what is wrong, seldom what to write instead."""

import re

__all__ = ["advice_for"]

_ADVICE = (
    (
        r"No such file or directory",
        "paths in the model's code begin where edlz was called; those beside it: Path(__file__).parent",
    ),
    (
        r"Cannot batch tensors with different shapes|number of elements does not match",
        "records must give tensors of one shape: pad them, or return ragged or sparse ones",
    ),
    (
        r"Feature: \S+ \(data type: .*required but could not be found",
        "the records have no such feature: compare the names in feed() with those that the data was written with",
    ),
    (
        r"Data types don't match",
        "the records have this feature in another type: use the one that the data was written with",
    ),
    (
        r"Could not parse example",
        "these records are no tf.train.Example: parse them as what the data was written as",
    ),
    (
        r"StringToNumberOp could not correctly convert|is not a valid (float|int)",
        "correct the record, or leave such records out in feed(): dataset.filter(…)",
    ),
    (
        r"was expected to be an? \w+ tensor but is an? \w+ tensor"
        r"|type \w+ that does not match type \w+|Tensor conversion requested dtype",
        "convert one of them: tf.cast(x, tf.float32)",
    ),
    (
        r"Invalid input shape for input|incompatible with the layer|is incompatible with layer",
        "the shape in keras.Input, or that a layer was built for, and that of feed()'s features must be the same",
    ),
    (
        r"indices\[.*\] = .* is not in \[|: id -?\d+ is not within \[0, \d+\)",
        "raise input_dim of the Embedding, or map the ids into it",
    ),
    (
        r": id -?\d+ came as a floating-point number",
        'keep ids whole: keras.Input(…, dtype="int64"), and tf.int64 in feed()',
    ),
    (
        r"symbolic (`?tf\.|KerasTensor|Tensor|tensor).*(numpy|NumPy)|no attribute 'numpy'|A KerasTensor cannot be used as input",
        "use TensorFlow's or Keras' functions there (tf.…, keras.ops.…): this code is traced, not run on numbers",
    ),
    (
        r"(symbolic|`?tf\.)\s*`?(tf\.)?Tensor`? as a Python `?bool|Using a symbolic",
        "use tf.where or tf.cond: a condition on a tensor is not known while the code is traced",
    ),
    (
        r"iterating over .*Tensor|Iterating over a symbolic",
        "use tf.map_fn, or functions of whole tensors, in place of the loop",
    ),
    (
        r"must have the same rank|must have the same shape|[Ss]hapes? .*(incompatible|must be equal|match)"
        r"|Incompatible shapes|Dimensions must be equal|logits.* and .*labels.* must",
        "bring them to one shape: of labels and predictions, labels = tf.reshape(labels, tf.shape(predictions))",
    ),
)
_COMPILED = tuple((re.compile(pattern, re.DOTALL), text) for pattern, text in _ADVICE)


def advice_for(message: str) -> str:
    """Return what to do about an error with this message; nothing if there is no good advice."""
    return next((text for pattern, text in _COMPILED if pattern.search(message)), "")
