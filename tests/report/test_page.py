"""The page of a report in a browser: what it shows, and that one selection is everywhere."""


def test_a_report_shows_every_kernel_and_its_times(browser, resnet):
    path, trace = resnet
    browser.open(path)
    assert browser.texts("h1")[0].startswith("resnet20.onnx · batch 1 · onnxruntime")
    timed = trace.nodes[trace.nodes["time_us"].notna()]
    names = [text.split(" +")[0] for text in browser.texts(".table tbody th")]
    assert sorted(names) == sorted(timed["node"])
    times = timed.set_index("node")["time_us"][names]
    assert (times.diff().dropna() < 1e-6 * times.max()).all()  # ties are in the order of the model


def test_a_row_that_is_clicked_is_described_and_kept_in_the_address(browser, resnet):
    browser.open(resnet[0])
    browser.click(".table tbody tr", 1)
    chosen = browser.texts(".table tbody tr[aria-selected=true] th")
    assert len(chosen) == 1 and browser.texts(".details h2") == chosen
    browser.wait("location.hash.includes('selected=')")
    browser.driver.refresh()
    browser.wait("document.querySelector('.details h2') !== null")
    assert browser.texts(".details h2") == chosen
