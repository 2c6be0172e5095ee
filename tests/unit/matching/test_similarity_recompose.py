"""Links of partitions that share an object: the first one is kept, and no object is in two."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.matching.similarity.recompose import first_come


def kept(*batches: list[tuple[str, str]]) -> list[bool]:
    """Say which links are kept; each has the ids on its left and those on its right."""
    given = (
        pa.table({"left": left, "right": right, "kept": [True] * len(batch)}).to_batches()[0]
        for batch in batches
        for left, right in [zip(*([[*ids] for ids in link] for link in batch), strict=True)]
    )
    return [row["kept"] for batch in first_come(given) for row in batch.to_pylist()]


def test_a_link_whose_object_is_taken_is_not_kept() -> None:
    assert kept([("a", "x"), ("bc", "y"), ("d", "x"), ("c", "z")]) == [True, True, False, False]


def test_a_link_that_is_not_kept_takes_nothing() -> None:
    assert kept([("a", "x"), ("ab", "y"), ("b", "y")]) == [True, False, True]


def test_an_id_of_the_other_side_is_another_object() -> None:
    assert kept([("a", "b"), ("b", "a")]) == [True, True]


def test_batches_follow_each_other() -> None:
    assert kept([("a", "x")], [("b", "x"), ("b", "y")]) == [True, False, True]
