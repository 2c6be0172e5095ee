"""Pages of several streams, aligned by time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mediator.standing.alignment import aligned
from mediator.standing.results import LoggedTuple

PAGE = 3


def page_of(stream: str, *times: float) -> list[LoggedTuple]:
    return [LoggedTuple(stream, time_s, {}, n) for n, time_s in enumerate(times, 1)]


def times_of(tuples: list[LoggedTuple]) -> list[tuple[str, float]]:
    return [(each.stream, each.time_s) for each in tuples]


def test_streams_without_a_backlog_are_merged_by_time() -> None:
    found = aligned([page_of("r", 1, 60), page_of("s", 2, 3)], PAGE, 0.0)
    assert times_of(found) == [("r", 1), ("s", 2), ("s", 3), ("r", 60)]


def test_tuples_beyond_a_full_page_wait_for_the_next_one() -> None:
    found = aligned([page_of("r", 1, 60), page_of("s", 2, 3, 4)], PAGE, 0.0)
    assert times_of(found) == [("r", 1), ("s", 2), ("s", 3), ("s", 4)]


def test_nothing_waits_for_what_is_late_anyway() -> None:
    found = aligned([page_of("r", 60), page_of("s", 2, 3, 4)], PAGE, 50.0)
    assert ("r", 60) in times_of(found)


def test_a_stream_keeps_its_order() -> None:
    found = aligned([page_of("r", 5, 1), page_of("s", 2, 4)], PAGE, 0.0)
    assert times_of(found) == [("s", 2), ("s", 4), ("r", 5), ("r", 1)]


TIMES = st.lists(st.floats(0, 100), max_size=PAGE)


@given(st.lists(TIMES, min_size=1, max_size=4), st.floats(0, 100))
def test_of_each_page_the_first_tuples_are_taken(
    pages: list[list[float]], watermark_s: float
) -> None:
    inputs = [page_of(f"s{n}", *times) for n, times in enumerate(pages)]
    found = aligned(inputs, PAGE, watermark_s)
    for some in inputs:
        own = [each for each in found if some and each.stream == some[0].stream]
        assert own == some[: len(own)]
    assert bool(found) == any(pages)
