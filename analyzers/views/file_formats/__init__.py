"""The file formats: each module lists its `FORMATS`, and a new module is found by itself."""
