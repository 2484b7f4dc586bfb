"""One module per data set, named like it, with a function `read(folder: Path) -> Dataset`."""
