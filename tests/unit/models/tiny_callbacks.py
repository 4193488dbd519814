"""A 784-16-10 net whose callbacks lower the learning rate, keep the best version, and stop the job."""

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


def optimizer(lr=0.3):
    return keras.optimizers.SGD(learning_rate=lr)


def feed(dataset, mode, metadata):
    def parse(record):
        example = tf.io.parse_single_example(record, _RECORD)
        return {"image": example["image"] / 255.0}, example["label"]

    return dataset.map(parse)


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}


def callbacks():
    return [
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1),
        keras.callbacks.EarlyStopping(monitor="val_accuracy", patience=3, restore_best_weights=True),
        keras.callbacks.CSVLogger("rounds.csv"),
    ]
