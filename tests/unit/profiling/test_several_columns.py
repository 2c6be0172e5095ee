"""Candidates of several columns: Apriori combines known ones within two tables."""

from __future__ import annotations

from spark_jobs.profiling.canonical import CellType
from spark_jobs.profiling.columns import ProfiledColumn
from spark_jobs.profiling.several import Candidate, combine

COLUMNS = tuple(
    ProfiledColumn(number, table, path, type_)
    for number, (table, path, type_) in enumerate(
        [
            ("a", "x", CellType.TEXT),
            ("a", "y", CellType.TEXT),
            ("a", "z", CellType.TEXT),
            ("b", "x", CellType.TEXT),
            ("b", "y", CellType.TEXT),
            ("b", "z", CellType.TEXT),
            ("b", "list[]", None),
            ("c", "y", CellType.TEXT),
        ]
    )
)


def pairs(*columns: tuple[int, int]) -> list[Candidate]:
    return [Candidate((a,), (b,)) for a, b in columns]


def test_two_candidates_of_the_same_tables_are_combined_once() -> None:
    assert [*combine(pairs((0, 3), (1, 4)), COLUMNS)] == [Candidate((0, 1), (3, 4))]


def test_different_tables_elements_and_one_column_twice_are_not_combined() -> None:
    assert not [*combine(pairs((0, 3), (1, 7)), COLUMNS)]
    assert not [*combine(pairs((0, 3), (1, 6)), COLUMNS)]
    assert not [*combine(pairs((0, 3), (1, 3)), COLUMNS)]


def test_three_columns_need_all_their_pairs() -> None:
    candidates = [Candidate((0, 1), (3, 4)), Candidate((0, 2), (3, 5))]
    assert not [*combine(candidates, COLUMNS)]
    assert [*combine([*candidates, Candidate((1, 2), (4, 5))], COLUMNS)] == [
        Candidate((0, 1, 2), (3, 4, 5))
    ]
