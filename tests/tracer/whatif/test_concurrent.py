"""Items worked at side by side."""

import threading

import pytest

from tracer.whatif.shard_runs import in_order


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_results_come_in_the_order_of_the_items(workers):
    assert list(in_order(lambda n: n * n, range(20), workers)) == [n * n for n in range(20)]


def test_workers_work_at_the_same_time():
    meeting = threading.Barrier(3, timeout=60)  # each waits for the others
    assert sorted(in_order(lambda _: meeting.wait(), range(3), 3)) == [0, 1, 2]


def test_no_more_items_are_drawn_than_are_worked_at():
    drawn = []

    def items():
        for number in range(50):
            drawn.append(number)
            yield number

    results = in_order(lambda n: n, items(), 2)
    for number in range(10):
        assert next(results) == number
        assert len(drawn) <= number + 3


@pytest.mark.parametrize("workers", [1, 3])
def test_what_an_item_raises_is_raised_in_its_turn(workers):
    def work(number):
        if number == 4:
            raise KeyError(number)
        return number

    seen, before = [], set(threading.enumerate())
    with pytest.raises(KeyError, match="4"):
        for number in in_order(work, range(100), workers):
            seen.append(number)
    assert seen == [0, 1, 2, 3]
    assert set(threading.enumerate()) <= before
