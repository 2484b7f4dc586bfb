"""Turn runs and models into columns of the node table, and render results."""

from tracer.support.imports import redirect

if __name__ == "analyzers":
    redirect(__name__)
