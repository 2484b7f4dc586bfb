"""The named energy models: one module each, with an `EnergyModel` called `MODEL`."""
