"""Threads of one core each: results in order, each item once, the caller's settings unchanged."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice

import pytest
import torch

from earmark.errors import AudioError, SettingError
from earmark.runtime.threads import map_in_threads, share_items


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
def test_results_come_in_order_whichever_is_ready_first(threads):
    def slow_first(number):
        time.sleep(0.02 if number == 0 else 0)
        return number * number

    found = list(map_in_threads(slow_first, iter(range(20)), threads))
    assert found == [number * number for number in range(20)]


def test_torch_uses_one_core_on_our_threads_and_its_own_number_elsewhere():
    seen = {}

    def elsewhere():
        torch.set_num_threads(3)
        seen["ours"] = set(map_in_threads(lambda _: torch.get_num_threads(), iter(range(8)), 4))
        seen["after"] = torch.get_num_threads()

    before = torch.get_num_threads()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    torch.set_num_threads(before)  # torch also keeps it for new threads
    assert seen == {"ours": {1}, "after": 3}


def test_items_are_fetched_one_at_a_time_and_only_a_few_ahead():
    busy = threading.Lock()
    fetched = 0

    def items():
        nonlocal fetched
        while True:
            assert busy.acquire(blocking=False)
            fetched += 1
            busy.release()
            yield fetched

    results = map_in_threads(lambda item: item, items(), threads=2)
    assert list(islice(results, 100)) == list(range(1, 101))
    results.close()
    assert fetched <= 100 + 2 * 2 + 2


def test_errors_are_raised_where_the_results_are_read():
    def items():
        yield 1
        raise KeyError("item")

    with pytest.raises(KeyError, match="item"):
        list(map_in_threads(abs, items(), threads=2))
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(lambda item: 1 / item, iter([1, 0, 2]), threads=2))
    assert list(map_in_threads(abs, iter([-1]), threads=2)) == [1]  # the threads survive


def test_many_callers_share_the_threads():
    def ours():
        return [one for one in threading.enumerate() if one.name.startswith("earmark")]

    found = {}
    list(map_in_threads(abs, iter([1]), threads=2))
    before = len(ours())

    def call(caller):
        items = islice(count(caller * 100), 50)
        found[caller] = list(map_in_threads(lambda item: item + 1, items, threads=2))

    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == {caller: [caller * 100 + n + 1 for n in range(50)] for caller in range(8)}
    assert len(ours()) == before


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "2"])
def test_an_invalid_number_of_threads_is_an_error(wrong):
    with pytest.raises(SettingError, match="0 is one per core"):
        list(map_in_threads(abs, iter([1]), threads=wrong))


def test_an_error_reaches_every_reader_of_shared_items():
    def items():
        yield 1
        raise AudioError("cut")

    one, other = share_items(items(), 2)
    assert next(one) == 1
    with pytest.raises(AudioError, match="cut"):
        next(one)
    assert next(other) == 1
    with pytest.raises(AudioError, match="cut"):
        next(other)


def test_items_shared_between_threads_reach_each_of_them_in_order():
    readers = share_items(iter(range(2000)), 4)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(list, readers)) == [list(range(2000))] * 4
