"""One browser for all tests of a session, and reports of the shipped models."""

import pytest

import tracer
from tests.report.browser import Browser, missing, opened


@pytest.fixture(scope="session")
def driver():
    reason = missing()
    if reason:
        pytest.skip(reason)
    pytest.importorskip("selenium")
    with opened() as driver:
        yield driver


@pytest.fixture
def browser(driver):
    """A browser; a test ends without a message on the console and without a request."""
    browser = Browser(driver)
    browser.messages(), browser.requests()
    yield browser
    assert browser.messages() == []
    assert browser.requests() == []


@pytest.fixture(scope="session")
def resnet(tmp_path_factory):
    """The report of a profile of ResNet-20, and its trace."""
    trace = tracer.profile("models/resnet_cifar/resnet20.onnx", runs=10, threads=1)
    return trace.save(tmp_path_factory.mktemp("resnet") / "r.html"), trace
