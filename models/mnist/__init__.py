"""The small convnet every framework's MNIST tutorial begins with."""
