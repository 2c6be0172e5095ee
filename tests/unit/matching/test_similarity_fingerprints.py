"""What vouches for the links of a former result, and where partitions are cut."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.matching.similarity.fingerprints import (
    Fingerprint,
    FormerRow,
    PartitionLink,
    reason_to_match,
)
from spark_jobs.matching.similarity.partitions import Cell, Counts, split

LINK = PartitionLink(("a1",), ("b1", "b2"), 0.1 + 0.2, {"text(name)": 1 / 3})
OTHER = PartitionLink(("a2",), ("b3",), 0.9, {"text(name)": 0.9})
ROWS: list[dict[str, Any]] = [
    {"side": side, "id": id_, "record": "{}", "link": None, "cannot": None, "owned": True}
    for side, id_ in ((0, "a1"), (0, "a2"), (1, "b1"), (1, "b2"), (1, "b3"))
]


def present(*changes: dict[str, Any], settings: str = "s") -> Fingerprint:
    """The fingerprint of the rows, the first of which are changed."""
    changed = [row | change for row, change in zip(ROWS, changes, strict=False)]
    return Fingerprint.of(settings, [*changed, *ROWS[len(changed) :]])


def former(*links: PartitionLink, of: Fingerprint | None = None) -> list[FormerRow]:
    vouched = str((of or present()).with_links(links))
    return [*(FormerRow(vouched, link) for link in links), FormerRow(vouched)]


def test_links_are_taken_over_where_nothing_has_changed() -> None:
    shuffled = Fingerprint.of("s", ROWS[::-1])
    assert reason_to_match(shuffled, former(OTHER, LINK)) is None
    assert reason_to_match(shuffled, former()) is None


def test_a_row_survives_being_written_and_read() -> None:
    read = [FormerRow.from_json(row.to_json()) for row in former(LINK, OTHER)]
    assert read == former(LINK, OTHER)
    assert reason_to_match(present(), read) is None


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (present(settings="other"), "specification"),
        (present({"record": '{"name": 1}'}), "objects"),
        (present({"owned": False}), "objects"),
        (present({"link": "must:a1"}), "decisions"),
        (present({"cannot": ["b1"]}), "decisions"),
        (present({"record": "x", "link": "must:a1"}, {}, {"cannot": ["a1"]}), "objects"),
    ],
)
def test_why_a_partition_is_matched_anew(now: Fingerprint, reason: str) -> None:
    assert reason_to_match(now, former(LINK)) == reason


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "objects"),
        ([FormerRow(None, LINK)], "objects"),
        ([FormerRow("", LINK)], "specification"),
        ([FormerRow("-----", LINK)], "specification"),
        (former(LINK, OTHER)[1:], "links"),
        ([*former(LINK), FormerRow(None, OTHER)], "links"),
        ([FormerRow(former(LINK)[0].fingerprint, LINK._replace(similarity=0.31))], "links"),
        ([FormerRow(f"{former(LINK)[0].fingerprint}-", LINK)], "links"),
    ],
)
def test_a_former_result_that_lacks_rows_or_was_edited_does_not_vouch(
    rows: list[FormerRow], reason: str
) -> None:
    assert reason_to_match(present(), rows) == reason


def test_a_rejected_link_is_vouched_for_too() -> None:
    vouched = str(present().with_links([LINK, OTHER]))
    rows = [FormerRow(vouched, LINK), FormerRow(None, OTHER)]
    assert reason_to_match(present(), rows) is None
    assert json.loads(rows[1].to_json())["fingerprint"] is None


positions = st.lists(st.integers(0, 63), min_size=1, max_size=80)


def cut(found: list[int], most: int, counted_bits: int = 0) -> list[int]:
    """Cut positions of six bits, counted by cells of so many."""
    cells, starts = [Cell(0, 6)], list[int]()
    while cells:
        at = [(p >> counted_bits << counted_bits, 1) for p in found]
        heavy: list[Cell] = []
        for cell in cells:
            starts += split(cell, Counts(at).within, most, counted_bits, heavy)
        cells, counted_bits = heavy, 0
    return starts


@given(positions, st.integers(1, 20), st.integers(0, 5))
def test_no_partition_has_more_unless_they_lie_at_one_place(
    found: list[int], most: int, counted_bits: int
) -> None:
    starts = cut(found, most)
    assert cut(found, most, counted_bits) == starts, "it depends on how positions are counted"
    for start, end in zip(starts, [*starts[1:], 64], strict=True):
        within = [p for p in found if start <= p < end]
        assert within
        assert len(within) <= most or len({*within}) == 1


def test_a_change_moves_only_the_cuts_around_it() -> None:
    random = Random(1)
    found = [random.randrange(64) for _ in range(100)]
    before = cut(found, 10)
    after = cut([*found, *[63] * 5], 10)
    assert [start for start in after if start < 32] == [start for start in before if start < 32]
