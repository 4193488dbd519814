"""Models with one mistake each: what the user is told, at which line, and what to write."""

__all__ = ["MISTAKES"]

# Of each: its name; what stands behind the sound model; what is told; what the line holds; what helps.
MISTAKES = [
    (
        "own train_step",
        """
        class CustomModel(keras.Model):
            def train_step(self, data):
                raise AssertionError
        def custom_model():
            return CustomModel()
        """,
        r"CustomModel\.train_step\(\) would never be called",
        "def train_step(self, data):",
        r"call\(\), add_loss\(\) or loss",
    ),
    (
        "own compute_loss",
        """
        class CustomModel(keras.Model):
            def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
                return 0.0
        def custom_model():
            return CustomModel()
        """,
        r"CustomModel\.compute_loss\(\) would never be called",
        "def compute_loss(",
        r"write it as loss\(labels, predictions\)",
    ),
    (
        "compiled",
        """
        def custom_model():
            model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
            model.compile("adam", "mse")
            return model
        """,
        r"the model is compiled, but edlz would ignore what its compile\(\) sets: .* jit_compile",
        "def custom_model():",
        r"leave compile\(\) out",
    ),
    (
        "metrics in a list",
        "def eval_metrics_fn():\n    return [keras.metrics.AUC(), 'accuracy']\n",
        r"eval_metrics_fn\(\) returned list, not a dict",
        "def eval_metrics_fn():",
        r"return \{name: metric\}",
    ),
    (
        "a metric's name",
        "def eval_metrics_fn():\n    return {'auc': 'AUC'}\n",
        'metric "auc" is str',
        "def eval_metrics_fn():",
        "keras.metrics",
    ),
    (
        "a loss that is NaN",
        "def loss(labels, predictions):\n    return tf.reduce_mean(predictions) * float('nan')\n",
        "the loss of the first minibatches is nan, before anything was trained",
        "def loss(labels, predictions):",
        "look for log",
    ),
    (
        "a loss of NaN whose gradient is 0",
        "def loss(labels, predictions):\n    return tf.math.log(tf.reduce_mean(predictions) * 0.0 - 1.0)\n",
        "the loss of the first minibatches is nan",
        "def loss(labels, predictions):",
        "look for log",
    ),
    (
        "a table too wide",
        """
        def custom_model():
            x = keras.Input((2,))
            ids = layers.Lambda(lambda t: tf.cast(t * 1000, tf.int64), output_shape=(2,))(x)
            return keras.Model(x, layers.Dense(1, activation="sigmoid")(layers.Flatten()(Embedding(10**6)(ids))))
        """,
        "rows of output_dim=1,000,000 are longer than those of parameter servers, 4,096 at most",
        "def custom_model():",
        "is it the number of ids",
    ),
    (
        "a loss of one parameter",
        "def loss(a):\n    return 0.0\n",
        r"loss\(a\) cannot be called as loss\(labels, predictions\): too many positional arguments",
        "def loss(a):",
        r"write loss\(labels, predictions\)",
    ),
    (
        "a feed of one parameter",
        "def feed(dataset):\n    return dataset\n",
        r"feed\(\) takes one parameter, so it gets a list of records; it returned .* more\]",
        "def feed(dataset):",
        r"write feed\(dataset, mode, metadata\)",
    ),
    (
        "a feed without end",
        """
        whole = feed
        def feed(dataset, mode, metadata):
            dataset = whole(dataset, mode, metadata)
            return dataset.repeat()
        """,
        r"feed\(\) repeats its records without end",
        "return dataset.repeat()",
        "leave it out: epochs are --num_epochs",
    ),
    (
        "a feed that batches",
        """
        whole = feed
        def feed(dataset, mode, metadata):
            dataset = whole(dataset, mode, metadata)
            return dataset.batch(64).prefetch(1)
        """,
        r"feed\(\) batches its records",
        "return dataset.batch(64)",
        r"leave batch\(\) out",
    ),
    (
        "a feed that batches and then parses",
        """
        def feed(dataset, mode, metadata):
            def parse(lines):
                a, b, label = tf.io.decode_csv(lines, [0.0, 0.0, 0])
                return tf.stack([a, b], 1), label
            return dataset.batch(16).map(parse)
        """,
        r"feed\(\) batches its records",
        "return dataset.batch(16)",
        r"end with unbatch\(\)",
    ),
    (
        "whole minibatches of a ragged feature",
        """
        def feed(dataset, mode, metadata):
            def parse(lines):
                return tf.strings.split(lines, ","), tf.zeros(tf.shape(lines))
            return dataset.batch(8, drop_remainder=True).map(parse)
        """,
        r"feed\(\) batches its records",
        "return dataset.batch(8, drop_remainder=True)",
        r"leave batch\(\) out",
    ),
    (
        "whole minibatches",
        """
        whole = feed
        def feed(dataset, mode, metadata):
            return whole(dataset, mode, metadata).batch(8, drop_remainder=True)
        """,
        r"feed\(\) batches its records",
        "return whole(dataset, mode, metadata).batch(8, drop_remainder=True)",
        r"leave batch\(\) out",
    ),
    (
        "batches of a ragged feature from Python",
        """
        def feed(dataset, mode, metadata):
            def parse(line):
                words = tf.numpy_function(lambda text: np.array(text.split(b","), object), [line], tf.string)
                return tf.RaggedTensor.from_row_lengths(words, [tf.size(words)]), 0.0
            return dataset.map(parse).batch(8)
        """,
        r"feed\(\) batches its records",
        "return dataset.map(parse).batch(8)",
        r"leave batch\(\) out",
    ),
    (
        "batches of values whose rank is unknown",
        """
        def feed(dataset, mode, metadata):
            def parse(line):
                a, b, label = tf.io.decode_csv(line, [0.0, 0.0, 0])
                return tf.numpy_function(lambda a, b: np.array([a, b]), [a, b], tf.float32), label
            return dataset.map(parse).batch(8)
        """,
        r"feed\(\) batches its records",
        "return dataset.map(parse).batch(8)",
        r"leave batch\(\) out",
    ),
    (
        "batches of values of like lengths",
        """
        def feed(dataset, mode, metadata):
            def parse(line):
                a, b, label = tf.io.decode_csv(line, [0.0, 0.0, 0])
                return tf.ones([1 + tf.cast(a * 7, tf.int32)]), label
            return dataset.map(parse).bucket_by_sequence_length(lambda x, _: tf.size(x), [3], [8, 8])
        """,
        r"feed\(\) batches its records",
        "return dataset.map(parse).bucket_by_sequence_length(",
        r"leave batch\(\) out",
    ),
    (
        "an exit",
        """
        import sys
        def custom_model():
            sys.exit(3)
        """,
        r"the model's code called sys\.exit\(3\)",
        "sys.exit(3)",
        "raise an error there that says what is wrong",
    ),
    (
        "a feature's name",
        """
        def custom_model():
            ages, incomes = keras.Input((1,), name="ages"), keras.Input((1,), name="incomes")
            both = layers.Concatenate()([ages, incomes])
            return keras.Model([ages, incomes], layers.Dense(1, activation="sigmoid")(both))
        def feed(dataset, mode, metadata):
            def parse(line):
                age, income, label = tf.io.decode_csv(line, [[0.0], [0.0], 0])
                return {"age": age[None], "incomes": income[None]}, label
            return dataset.map(parse)
        """,
        r'takes "ages", "incomes" \(\S+model.py:\d+ in custom_model\), but feed\(\) yields "age", "incomes"',
        "def feed(dataset, mode, metadata):",
        'is "age" meant to be "ages"',
    ),
    (
        "a feature's name in call()",
        """
        class CustomModel(keras.Model):
            def __init__(self):
                super().__init__()
                self.last = layers.Dense(1, activation="sigmoid")
            def call(self, features):
                return self.last(features["ages"])
        def custom_model():
            return CustomModel()
        def feed(dataset, mode, metadata):
            def parse(line):
                age, _, label = tf.io.decode_csv(line, [[0.0], [0.0], 0])
                return {"age": age[None]}, label
            return dataset.map(parse)
        """,
        r"call\(\) raised KeyError: 'ages'",
        'return self.last(features["ages"])',
        r'the features are "age", by feed\(\) \(\S+model.py:\d+ in feed\)',
    ),
    (
        "values of several lengths",
        """
        def feed(dataset, mode, metadata):
            def parse(line):
                a, b, label = tf.io.decode_csv(line, [0.0, 0.0, 0])
                return tf.ones([1 + tf.cast(a * 7, tf.int32)]), label
            return dataset.map(parse)
        """,
        "Cannot batch tensors with different shapes",
        "def feed(dataset, mode, metadata):",
        "pad them, or return ragged or sparse ones",
    ),
    # ---- more of the kind
    (
        "an optimizer's name",
        "def optimizer():\n    return 'adam'\n",
        r"optimizer\(\) returned str, which is no Keras optimizer",
        "def optimizer():",
        "return one of keras.optimizers: SGD",
    ),
    (
        "an unknown optimizer",
        "def optimizer():\n    return keras.optimizers.Adafactor()\n",
        'optimizer "Adafactor" has no compiled form',
        "def optimizer():",
        "use one of SGD",
    ),
    (
        "moving averages of parameters",
        "def optimizer():\n    return keras.optimizers.Adam(use_ema=True)\n",
        r"Adam\(use_ema=True\): this option has no compiled form",
        "def optimizer():",
        "leave use_ema out",
    ),
    (
        "accumulated gradients",
        "def optimizer():\n    return keras.optimizers.Adam(gradient_accumulation_steps=4)\n",
        r"Adam\(gradient_accumulation_steps=4\): this option has no compiled form",
        "def optimizer():",
        "use --grads_to_wait",
    ),
    (
        "an optimizer with a parameter",
        "def optimizer(rate):\n    return keras.optimizers.Adam(rate)\n",
        r"optimizer\(rate\) cannot be called without arguments: missing a required argument: 'rate'",
        "def optimizer(rate):",
        "set --model_params",
    ),
    (
        "a tensor for a model",
        "def custom_model():\n    return layers.Dense(1)(keras.Input((2,)))\n",
        r"custom_model\(\) returned KerasTensor, not a keras.Model",
        "def custom_model():",
        r"keras.Model\(inputs, outputs\)",
    ),
    (
        "a model with a parameter",
        "def custom_model(units):\n    return keras.Sequential([layers.Dense(units)])\n",
        r"custom_model\(units\) cannot be called without arguments",
        "def custom_model(units):",
        "set --model_params",
    ),
    (
        "features without labels",
        "def feed(dataset, mode, metadata):\n    return dataset.map(lambda line: {'line': line})\n",
        r"feed\(\) yields \{line: .*\}, not \(features, labels\)",
        "def feed(dataset, mode, metadata):",
        "return features, labels",
    ),
    (
        "a feed that keeps nothing",
        """
        whole = feed
        def feed(dataset, mode, metadata):
            return whole(dataset, mode, metadata).filter(lambda features, label: label > 5)
        """,
        r"feed\(\) leaves out every record of the data",
        "def feed(dataset, mode, metadata):",
        "look at the condition of its filter",
    ),
    (
        "a feed that returns nothing",
        "def feed(dataset, mode, metadata):\n    dataset.map(lambda line: (line, line))\n",
        r"feed\(\) returned NoneType, not a tf.data.Dataset",
        "def feed(dataset, mode, metadata):",
        "return dataset.map",
    ),
    (
        "class numbers for a dense loss",
        """
        def custom_model():
            return keras.Sequential([keras.Input((2,)), layers.Dense(3, activation="softmax")])
        loss = keras.losses.CategoricalCrossentropy()
        """,
        r"loss\(\) raised ValueError on the first minibatch: labels \(8,\) int32, predictions \(8, 3\) float32",
        "loss = keras.losses.CategoricalCrossentropy()",
        "integer labels need a sparse categorical loss",
    ),
    (
        "another number of features",
        """
        def custom_model():
            return keras.Sequential([keras.Input((3,)), layers.Dense(1)])
        """,
        r"the model's call\(\) raised ValueError: .*",
        "def custom_model():",
        r"the shape in keras.Input.* and that of feed\(\)'s features must be the same",
    ),
    (
        "numbers that are not there yet",
        """
        def loss(labels, predictions):
            return np.mean(labels.numpy())
        """,
        r"loss\(\) raised .* on the first minibatch",
        "return np.mean(labels.numpy())",
        "this code is traced, not run on numbers",
    ),
    (
        "integers times floats",
        "def loss(labels, predictions):\n    return labels * predictions[:, 0]\n",
        r"loss\(\) raised .* on the first minibatch: labels \(8,\) int32, predictions \(8, 1\) float32",
        "return labels * predictions[:, 0]",
        r"tf.cast\(x, tf.float32\)",
    ),
    (
        "a callback's class",
        "def callbacks():\n    return [keras.callbacks.EarlyStopping]\n",
        r"callbacks\(\) gives <class .*EarlyStopping.*>, which is no callback",
        "def callbacks():",
        "return a list of keras.callbacks.Callback objects",
    ),
    (
        "callbacks with a parameter",
        "def callbacks(model):\n    return []\n",
        r"callbacks\(model\) cannot be called without arguments",
        "def callbacks(model):",
        "give its parameters defaults",
    ),
    (
        "a stateful layer",
        """
        def custom_model():
            x = keras.Input((2, 1), batch_size=8)
            return keras.Model(x, layers.Dense(1)(layers.LSTM(3, stateful=True)(x)))
        """,
        "layer lstm is stateful",
        "def custom_model():",
        "use stateful=False",
    ),
    (
        "weights that the loss does not take",
        """
        whole = feed
        def feed(dataset, mode, metadata):
            return whole(dataset, mode, metadata).map(lambda features, label: (features, label, 1.0))
        """,
        r"feed\(\) yields sample weights, but loss\(labels, predictions\) takes none",
        "def loss(labels, predictions):",
        r"loss\(labels, predictions, sample_weight\)",
    ),
    (
        "fewer fields than there are",
        """
        def feed(dataset, mode, metadata):
            def parse(line):
                a, label = tf.io.decode_csv(line, [0.0, 0])
                return tf.stack([a, a]), label
            return dataset.map(parse)
        """,
        "Expect 2 fields but have 3 in record",
        "a, label = tf.io.decode_csv(line, [0.0, 0])",
        "",
    ),
    (
        "ids out of range",
        """
        def custom_model():
            x = keras.Input((2,))
            ids = layers.Lambda(lambda t: tf.cast(t * 1000, tf.int64), output_shape=(2,))(x)
            row = layers.Flatten()(Embedding(4, input_dim=5, name="places")(ids))
            return keras.Model(x, layers.Dense(1, activation="sigmoid")(row))
        """,
        r"layer places: id \d+ is not within \[0, 5\) ",
        "def custom_model():",
        "raise input_dim of the Embedding, or map the ids into it",
    ),
    (
        "ids that were rounded",
        """
        def custom_model():
            x = keras.Input((2,))
            ids = layers.Lambda(lambda t: 1e8 + t)(x)
            row = layers.Flatten()(Embedding(4, name="places")(ids))
            return keras.Model(x, layers.Dense(1, activation="sigmoid")(row))
        """,
        r"layer places: id \d+ came as a floating-point number, .* several ids would share a row ",
        "def custom_model():",
        "keep ids whole: ",
    ),
    (
        "nothing to train",
        """
        def custom_model():
            return keras.Sequential([keras.Input((2,)), layers.Dense(1, trainable=False)])
        """,
        "the model has no trainable variables",
        "def custom_model():",
        "trainable=True",
    ),
]
