"""`python -m experiments`: run all experiments with default settings and write their pages."""

import importlib

from experiments import _page

EXPERIMENTS = ("layers", "family", "batches", "training", "accumulators")


def main() -> None:
    """Runs each experiment, which writes its page."""
    for name in EXPERIMENTS:
        print(f"== experiments.{name}", flush=True)
        importlib.import_module(f"experiments.{name}").main([])


if __name__ == "__main__":
    _page.run(main)
