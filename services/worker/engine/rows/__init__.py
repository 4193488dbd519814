"""The rows of embedding tables that a minibatch looks up."""
