"""The file formats: each module lists its `FORMATS`, and new modules are discovered."""
