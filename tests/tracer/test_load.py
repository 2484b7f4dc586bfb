"""How busy the machine was: shares of what the system counted, by its documentation, proc(5)."""

import os

from tracer.support import measurements
from tracer.support.measurements import Load, Moment


def test_shares_are_those_of_all_processors(tmp_path, monkeypatch):
    monkeypatch.setattr(measurements, "_STAT", tmp_path / "stat")
    tick = os.sysconf("SC_CLK_TCK")

    def counted(*seconds):
        fields = " ".join(str(round(each * tick)) for each in (*seconds, 0, 0))
        (tmp_path / "stat").write_text(f"cpu  {fields}\ncpu0 1 2 3\n")

    # user nice system idle iowait irq softirq steal
    counted(1000, 0, 0, 500, 0, 0, 0, 3)
    before = Moment.now()
    counted(1003, 1, 1, 503, 1, 0, 0, 4)
    after = before.until_now()
    assert after.stolen == 0.1  # 1 of 10 seconds
    assert 0.4 < after.others <= 0.5  # 5, less those of this test


def test_where_the_system_does_not_tell_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(measurements, "_STAT", tmp_path / "missing")
    monkeypatch.setattr(measurements, "resource", None)
    assert Moment.now().until_now() == Load(None, None, None)
