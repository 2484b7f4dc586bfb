"""A browser without a window that opens reports, and what it says about them."""

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAMS = {"chromium": "chromium", "chromedriver": "chromium-driver"}
"""Programs that the tests need, and the packages of Debian that hold them."""

_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--force-color-profile=srgb", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip


def missing() -> str:
    """Why there is no browser, or ''."""
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"no {program}: apt-get install {package}"
    return ""


@contextmanager
def opened() -> Iterator[Any]:
    """A selenium driver of Chromium that fetches nothing, and logs requests and messages."""
    os.environ["SE_OFFLINE"] = "true"
    import psutil
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in _OPTIONS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    started = psutil.Process(driver.service.process.pid).children(recursive=True)
    try:
        yield driver
    finally:
        driver.quit()
        for process in started:  # on a busy machine the driver may end before its browser does
            with suppress(psutil.NoSuchProcess):
                process.kill()


class Browser:
    """Reports in a browser: what they show, and what they did that they should not."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False,
             fragment: str = "") -> None:  # fmt: skip
        """Open a report in a window of this size, and wait until its scripts have run."""
        self.size(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.messages()
        self.driver.get("about:blank")
        self.driver.get(f"{path.absolute().as_uri()}{fragment}")
        self.wait("!document.getElementById('report').hidden")

    def size(self, width: int, height: int) -> None:
        """Set the size of the page in CSS pixels."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def wait(self, condition: str) -> None:
        """Wait at most ten seconds until an expression of JavaScript holds."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, 10, 0.02).until(lambda _: self.ask(condition))

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        return self.driver.execute_script(f"return ({expression})")

    def texts(self, selector: str) -> list[str]:
        """The text of each element."""
        return list(self.ask(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
        ))  # fmt: skip

    def click(self, selector: str, position: int = 0, **keys: bool) -> None:
        """Click an element, with `ctrlKey` or `shiftKey` held down."""
        self.driver.execute_script(
            "document.querySelectorAll(arguments[0])[arguments[1]].dispatchEvent("
            "new MouseEvent('click', {bubbles: true, cancelable: true, ...arguments[2]}))",
            selector, position, keys,
        )  # fmt: skip

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def messages(self) -> list[str]:
        """Messages on the console since the last call: a good report has none."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call, except files and what a page holds."""
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        urls = [event["request"]["url"] for event in sent]
        return [url for url in urls if not url.startswith(("file:", "data:", "about:", "blob:"))]

    def picture(self, path: Path) -> None:
        """Save what the window shows as a PNG."""
        answer = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        path.write_bytes(base64.b64decode(answer["data"]))

    def grow(self) -> None:
        """Make the window as high as the page."""
        width, height = self.ask("[innerWidth, document.documentElement.scrollHeight]")
        self.size(width, height)
        self.wait(f"innerHeight === {height}")
