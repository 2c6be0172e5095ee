"""Links of partitions that share an object: the first is kept, so no object is in two."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.matching.similarity.recompose import first_come


def kept(*batches: list[tuple[str, str]]) -> list[bool]:
    """Return which links are kept; a link has its left ids and its right ids."""
    record_batches = (
        pa.table({"left": left, "right": right, "kept": [True] * len(batch)}).to_batches()[0]
        for batch in batches
        for left, right in [zip(*([[*ids] for ids in link] for link in batch), strict=True)]
    )
    return [row["kept"] for batch in first_come(record_batches) for row in batch.to_pylist()]


def test_a_link_with_a_linked_object_is_dropped() -> None:
    assert kept([("a", "x"), ("bc", "y"), ("d", "x"), ("c", "z")]) == [True, True, False, False]


def test_a_dropped_link_does_not_block_others() -> None:
    assert kept([("a", "x"), ("ab", "y"), ("b", "y")]) == [True, False, True]


def test_equal_ids_of_both_sides_are_different_objects() -> None:
    assert kept([("a", "b"), ("b", "a")]) == [True, True]


def test_earlier_batches_have_precedence() -> None:
    assert kept([("a", "x")], [("b", "x"), ("b", "y")]) == [True, False, True]
