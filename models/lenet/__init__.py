"""LeNet for colour images: the layers of the narrow-accumulator experiment."""
