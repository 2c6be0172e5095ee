"""Clusters in results: ids that any class accepts, and unique names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from mediator.schema.ids import id_error
from spark_jobs.linkage.open.local.clusters import name_clusters
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.result_ids import result_id, result_ids
from tests.unit.linkage.memory_context import MemoryContext, text_table

DOCUMENT = {
    "inputs": {"people": {"file": "people.csv"}, "others": {"file": "others.csv"}},
    "blocking": [["phone"]],
    "comparisons": [{"columns": ["name"], "levels": ["exact"]}],
}
KNOWN = OpenSpec.parse({**DOCUMENT, "known": {"file": "known.csv"}})
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


def test_ids_of_results_are_unique_and_equal_for_columns() -> None:
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
    context.execute(OpenSpec.parse({**DOCUMENT, "threshold": 0.01}))
    ids = context.output_table(stage).column("id").to_pylist()
    assert len({*ids}) == len(ids) == len(rows) * (1 if stage == "pairs" else 2)
    assert [id_ for id_ in ids if id_error(id_) is not None] == []


def clusters(groups: Mapping[str, int], known: Mapping[str, str]) -> dict[str, str]:
    """Name groups of records of `people`; return the cluster name of each record."""
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
    roots_by_group = {group: row for row, group in reversed([*enumerate(groups.values())])}
    roots = pa.table(
        {"row": records["row"], "root": [roots_by_group[group] for group in groups.values()]}
    )
    named = name_clusters(records, roots, KNOWN)
    return dict(zip(named["record"].to_pylist(), named["cluster"].to_pylist(), strict=True))


def test_a_returning_record_gets_another_name_than_the_cluster_named_after_it() -> None:
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
def test_a_new_cluster_has_the_smallest_unused_number(known: Sequence[str], name: str) -> None:
    known_names = {f"{n + 4}": cluster for n, cluster in enumerate(known)}
    groups = {"3": 0, **{record: n for n, record in enumerate(known_names, 1)}}
    named = clusters(groups, known_names)
    assert named == {"3": name, **known_names}
