"""Fingerprints that validate a former result's links, and the cuts of partitions."""

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


def current(*changes: dict[str, Any], settings: str = "s") -> Fingerprint:
    """Return the fingerprint of the rows with changes to the first ones."""
    changed = [row | change for row, change in zip(ROWS, changes, strict=False)]
    return Fingerprint.of(settings, [*changed, *ROWS[len(changed) :]])


def former(*links: PartitionLink, fingerprint: Fingerprint | None = None) -> list[FormerRow]:
    text = str((fingerprint or current()).with_links(links))
    return [*(FormerRow(text, link) for link in links), FormerRow(text)]


def test_links_are_reused_if_nothing_has_changed() -> None:
    shuffled = Fingerprint.of("s", ROWS[::-1])
    assert reason_to_match(shuffled, former(OTHER, LINK)) is None
    assert reason_to_match(shuffled, former()) is None


def test_a_row_survives_encoding() -> None:
    decoded = [FormerRow.from_json(row.to_json()) for row in former(LINK, OTHER)]
    assert decoded == former(LINK, OTHER)
    assert reason_to_match(current(), decoded) is None


@pytest.mark.parametrize(
    ("fingerprint", "reason"),
    [
        (current(settings="other"), "specification"),
        (current({"record": '{"name": 1}'}), "objects"),
        (current({"owned": False}), "objects"),
        (current({"link": "must:a1"}), "decisions"),
        (current({"cannot": ["b1"]}), "decisions"),
        (current({"record": "x", "link": "must:a1"}, {}, {"cannot": ["a1"]}), "objects"),
    ],
)
def test_a_partition_is_rematched_for_a_reason(fingerprint: Fingerprint, reason: str) -> None:
    assert reason_to_match(fingerprint, former(LINK)) == reason


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
def test_a_former_result_with_missing_or_edited_rows_is_invalid(
    rows: list[FormerRow], reason: str
) -> None:
    assert reason_to_match(current(), rows) == reason


def test_a_fingerprint_covers_rejected_links() -> None:
    fingerprint = str(current().with_links([LINK, OTHER]))
    rows = [FormerRow(fingerprint, LINK), FormerRow(None, OTHER)]
    assert reason_to_match(current(), rows) is None
    assert json.loads(rows[1].to_json())["fingerprint"] is None


positions = st.lists(st.integers(0, 63), min_size=1, max_size=80)


def cut(values: list[int], max_objects: int, counted_bits: int = 0) -> list[int]:
    """Cut positions of six bits, counted in cells of `counted_bits` bits."""
    cells, starts = [Cell(0, 6)], list[int]()
    while cells:
        counts = [(p >> counted_bits << counted_bits, 1) for p in values]
        heavy: list[Cell] = []
        for cell in cells:
            starts += split(cell, Counts(counts).within, max_objects, counted_bits, heavy)
        cells, counted_bits = heavy, 0
    return starts


@given(positions, st.integers(1, 20), st.integers(0, 5))
def test_a_partition_exceeds_the_limit_only_at_one_position(
    values: list[int], max_objects: int, counted_bits: int
) -> None:
    starts = cut(values, max_objects)
    assert cut(values, max_objects, counted_bits) == starts, (
        "the cuts depend on how positions are counted"
    )
    for start, end in zip(starts, [*starts[1:], 64], strict=True):
        within = [p for p in values if start <= p < end]
        assert within
        assert len(within) <= max_objects or len({*within}) == 1


def test_a_change_moves_only_the_cuts_around_it() -> None:
    random = Random(1)
    values = [random.randrange(64) for _ in range(100)]
    before = cut(values, 10)
    after = cut([*values, *[63] * 5], 10)
    assert [start for start in after if start < 32] == [start for start in before if start < 32]
