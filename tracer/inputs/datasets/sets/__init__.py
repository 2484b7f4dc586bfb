"""One module per data set, named like it, with `read(folder: Path) -> LabelledImages`."""
