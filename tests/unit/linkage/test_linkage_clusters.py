"""Clusters as they are read: ids that any class accepts, and names that only one cluster has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from mediator.schema.ids import id_error
from spark_jobs.linkage.open.local.clusters import name_clusters
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.result_ids import result_id, result_ids
from tests.unit.linkage.memory_context import MemoryContext, text_table

GIVEN = {
    "inputs": {"people": {"file": "people.csv"}, "others": {"file": "others.csv"}},
    "blocking": [["phone"]],
    "comparisons": [{"columns": ["name"], "levels": ["exact"]}],
}
KNOWN = OpenSpec.parse({**GIVEN, "known": {"file": "known.csv"}})
NAMES = [
    ("a", "1"),
    ("a", "1/2"),
    ("a/1", "2"),
    ("a", "x" * 600),
    ("a", ".."),
    ("a\t", "\n"),
    ("", ""),
]


@pytest.mark.parametrize("names", NAMES)
def test_ids_of_results_are_ids_of_objects(names: tuple[str, str]) -> None:
    assert id_error(result_id(*names)) is None


def test_ids_of_results_are_different_and_the_same_for_columns() -> None:
    ids = [result_id(*names) for names in NAMES]
    assert len({*ids}) == len(NAMES)
    columns = (pa.chunked_array([side]) for side in zip(*NAMES, strict=True))
    assert result_ids(*columns).to_pylist() == ids


@pytest.mark.parametrize("stage", ["pairs", "clusters"])
def test_records_of_any_id_are_linked_into_rows_that_a_class_accepts(stage: str) -> None:
    rows = [
        {"id": id_, "name": f"Ada {n}", "phone": f"{n}"}
        for n, id_ in enumerate(("1/2", "1", "2/", "x" * 600, *(f"r/{n}" for n in range(20))))
    ]
    context = MemoryContext({"people": text_table(rows), "others": text_table(rows)})
    context.execute(OpenSpec.parse({**GIVEN, "threshold": 0.01}))
    ids = context.output_table(stage).column("id").to_pylist()
    assert len({*ids}) == len(ids) == len(rows) * (1 if stage == "pairs" else 2)
    assert [id_ for id_ in ids if id_error(id_) is not None] == []


def clusters(groups: Mapping[str, int], known: Mapping[str, str]) -> dict[str, str]:
    """Name groups of records of `people`; returns the name of the cluster of each record."""
    ids = [*groups]
    records = pa.table(
        {
            "row": pa.array(range(len(ids)), pa.int64()),
            "source": pa.array([1] * len(ids), pa.int32()),
            "id": pa.array(ids),
            "known": pa.array([known.get(id_) for id_ in ids], pa.string()),
            "truth": pa.nulls(len(ids), pa.string()),
        }
    )
    first = {group: at for at, group in reversed([*enumerate(groups.values())])}
    roots = pa.table({"row": records["row"], "root": [first[each] for each in groups.values()]})
    found = name_clusters(records, roots, KNOWN)
    return dict(zip(found["record"].to_pylist(), found["cluster"].to_pylist(), strict=True))


def test_a_record_that_came_again_gets_another_cluster_than_that_called_after_it() -> None:
    first = clusters({"3": 1, "4": 1}, {})
    assert first == {"3": "people/3", "4": "people/3"}
    second = clusters({"4": 1}, first)
    assert second == {"4": "people/3"}
    third = clusters({"3": 1, "4": 2}, second)
    assert third == {"3": "people~2/3", "4": "people/3"}
    assert clusters({"3": 1, "4": 2}, third) == third, "names are kept"
    fourth = clusters({"4": 2, "5": 1}, {**third, "5": third["3"]})
    assert clusters({"3": 3, "4": 2, "5": 1}, fourth)["3"] == "people~3/3"


@pytest.mark.parametrize(
    ("known", "name"),
    [
        (["people/3", "people~2/3", "people~3/3"], "people~4/3"),
        (["people/3", "people~3/3"], "people~2/3"),
        (["people~2/3"], "people/3"),
        (["people/3", "others~2/3", "people~2/33", "people~x/3", "~2/3"], "people~2/3"),
        (["people/3", "people~02/3", f"people~{9**99}/3"], "people~3/3"),
        (["", "/", "people", "people~2", "people~2/"], "people/3"),
    ],
)
def test_a_new_cluster_has_the_least_number_that_none_has(known: Sequence[str], name: str) -> None:
    others = {f"{n + 4}": one for n, one in enumerate(known)}
    groups = {"3": 0, **{record: n for n, record in enumerate(others, 1)}}
    found = clusters(groups, others)
    assert found == {"3": name, **others}
