"""Experiments need what the models need."""

from tests.models.conftest import pytest_runtest_setup

__all__ = ["pytest_runtest_setup"]
