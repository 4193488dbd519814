"""A 784-16-10 net with BatchNormalization: the smallest model with dense and non-trainable state."""

import keras
import tensorflow as tf

_RECORD = {
    "image": tf.io.FixedLenFeature([784], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def custom_model():
    image = keras.Input(shape=(784,), name="image")
    x = keras.layers.Dense(16, activation="relu")(image)
    x = keras.layers.BatchNormalization()(x)
    logits = keras.layers.Dense(10)(x)
    return keras.Model(inputs={"image": image}, outputs=logits)


def loss(labels, predictions):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions))


def optimizer(lr=0.1):
    return keras.optimizers.SGD(learning_rate=lr)


def feed(dataset, mode, metadata):
    def parse(record):
        example = tf.io.parse_single_example(record, _RECORD)
        features = {"image": example["image"] / 255.0}
        return features if mode == "prediction" else (features, example["label"])

    if mode == "training":
        dataset = dataset.shuffle(256)
    return dataset.map(parse)


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
