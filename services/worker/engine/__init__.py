"""The worker's Keras engine: everything that imports TensorFlow."""
