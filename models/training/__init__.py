"""Training with Adam and softmax cross-entropy, the same way in every framework."""
