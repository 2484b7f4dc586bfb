"""The page shows no number that cannot be, whatever a machine did to the runs."""

import numpy as np
import pytest

from tests.analyzers.test_impossible_numbers import PEAKS, base, check_text, run_on
from tests.examples import at_night
from tracer.analyzers import views
from tracer.api._assembly import analyze, assembled
from tracer.records.result import ViewOptions


@pytest.fixture(params=at_night(range(8), but=range(2)))
def trace(request):
    """Runs of LeNet, or of three operators, on a machine that is drawn."""
    random = np.random.default_rng(request.param)
    machine = {
        "runs": int(random.choice([1, 2, 12, 40])),
        "times": float(random.choice([0.0, 0.01, 1.0, 100.0])),
        "overhead": float(random.uniform(0, 6)),
        "stalls": float(random.uniform(0, 1)),
        "wall": float(random.uniform(0.01, 20)),
        "empty": random.choice([None, 0.5, 2.0]),
        "others": random.choice([None, 0.0, 0.9]),
        "seed": request.param,
    }
    model, run, types = base(() if request.param % 2 else ("MatMul", "Relu", "Neg"))
    made = run_on(run, machine)
    return assembled(model, [analyze(model, made, types, None, "plain")], {}, [PEAKS])


@pytest.mark.one_in(2)
def test_the_page_shows_no_number_that_cannot_be(browser, trace, tmp_path):
    page = tmp_path / "r.html"
    page.write_bytes(views.render(trace, "html", ViewOptions()))
    browser.open(page)
    tabs = browser.ask("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.id)")
    assert len(tabs) > 1
    for tab in tabs:
        browser.ask(f"document.getElementById('{tab}').click()")
        text = browser.ask("document.body.innerText")
        assert "µs" in text or "ns" in text
        check_text(text)
