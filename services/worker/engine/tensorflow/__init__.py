"""TensorFlow and Keras as the engine uses them."""
