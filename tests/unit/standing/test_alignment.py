"""Pages of several inputs, aligned by time."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from mediator.standing.alignment import InputPage, aligned
from mediator.standing.results import LoggedTuple


def all_of(stream: str, *times: float) -> InputPage:
    tuples = [LoggedTuple(stream, time_s, {}, n) for n, time_s in enumerate(times, 1)]
    return InputPage(tuples, inf)


def first_of(stream: str, *times: float) -> InputPage:
    """A page with more tuples behind it."""
    return all_of(stream, *times)._replace(until_s=max(times))


def times_of(tuples: list[LoggedTuple]) -> list[tuple[str, float]]:
    return [(tuple_.stream, tuple_.time_s) for tuple_ in tuples]


def test_streams_without_a_backlog_are_merged_by_time() -> None:
    tuples = aligned([all_of("r", 1, 60), all_of("s", 2, 3)], 0.0)
    assert times_of(tuples) == [("r", 1), ("s", 2), ("s", 3), ("r", 60)]


def test_tuples_beyond_the_read_end_of_a_backlog_wait() -> None:
    tuples = aligned([all_of("r", 1, 60), first_of("s", 2, 3, 4)], 0.0)
    assert times_of(tuples) == [("r", 1), ("s", 2), ("s", 3), ("s", 4)]


def test_tuples_wait_for_an_input_without_tuples_as_well() -> None:
    assert times_of(aligned([all_of("r", 1, 60), InputPage([], 30.0)], 0.0)) == [("r", 1)]


def test_tuples_do_not_wait_for_late_ones() -> None:
    tuples = aligned([all_of("r", 60), first_of("s", 2, 3, 4)], 50.0)
    assert ("r", 60) in times_of(tuples)


def test_a_stream_keeps_its_order() -> None:
    tuples = aligned([all_of("r", 5, 1), first_of("s", 2, 4)], 0.0)
    assert times_of(tuples) == [("s", 2), ("s", 4)]
    tuples = aligned([all_of("r", 5, 1), all_of("s", 2, 4)], 0.0)
    assert times_of(tuples) == [("s", 2), ("s", 4), ("r", 5), ("r", 1)]


TIMES = st.lists(st.floats(0, 100), max_size=3)


@given(st.lists(st.tuples(TIMES, st.booleans()), min_size=1, max_size=4), st.floats(0, 100))
def test_of_each_page_the_first_tuples_are_taken(
    inputs: list[tuple[list[float], bool]], watermark_s: float
) -> None:
    pages = [
        (first_of if is_waiting and times else all_of)(f"s{n}", *times)
        for n, (times, is_waiting) in enumerate(inputs)
    ]
    tuples = aligned(pages, watermark_s)
    for n, page in enumerate(pages):
        page_tuples = [tuple_ for tuple_ in tuples if tuple_.stream == f"s{n}"]
        assert page_tuples == page.tuples[: len(page_tuples)]
        if page.until_s >= watermark_s:
            assert all(tuple_.time_s <= page.until_s for tuple_ in tuples)
    assert bool(tuples) == any(page.tuples for page in pages)
