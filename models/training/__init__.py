"""Train with Adam and softmax cross-entropy, alike in every framework."""
