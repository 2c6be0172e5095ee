"""Values of columns: samples, profiles, and evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.matching.schemas import sampling
from spark_jobs.matching.schemas.elements import Element
from spark_jobs.matching.schemas.profiles import profile_of
from spark_jobs.matching.schemas.sampling import _Part
from spark_jobs.matching.schemas.values import ValueWeights, value_evidence


def element(name: str, values: Iterable[str], type_: str = "string") -> Element:
    counts = Counter(values)
    return Element((name,), type_, profile_of(counts.total(), counts.total(), counts))


def bits(left: Element, right: Element, *others: Element) -> float:
    profiles = [e.profile for e in (left, right, *others) if e.profile is not None]
    return value_evidence(left, right, ValueWeights(profiles)).bits


CITIES = element("city", ["Ulm", "Bonn", "Köln", "Jena", "Kiel", "Graz"])
TOWNS = element("town", ["Ulm", "Bonn", "Köln", "Jena", "Linz"])
BORN = element("born", [f"19{n}-01-02" for n in range(40, 60)])
BIRTHDAYS = element("birth", [f"19{n}-11-30" for n in range(50, 70)])
SUMS = element("sum", [f"{n}.50" for n in range(900, 950)])


def test_values_of_one_kind_are_more_similar() -> None:
    columns = (CITIES, TOWNS, BORN, BIRTHDAYS, SUMS)
    assert bits(CITIES, TOWNS, *columns) > bits(CITIES, BIRTHDAYS, *columns)
    assert bits(BORN, BIRTHDAYS, *columns) > bits(BORN, TOWNS, *columns)
    assert bits(SUMS, BIRTHDAYS, *columns) < 0


def test_common_values_are_weaker_evidence_than_rare_ones() -> None:
    flags = [element(f"f{n}", ["0", "1"]) for n in range(8)]
    rare = element("code", ["zq", "zr"]), element("kind", ["zq", "zr"])
    assert bits(flags[0], flags[1], *flags) < bits(*rare, *flags)


def test_columns_without_values_are_compared_by_type() -> None:
    empty, other = element("a", []), element("b", [])
    assert bits(empty, other) > 0
    assert bits(empty, CITIES) == 0
    number, text = Element(("n",), "integer"), Element(("s",), "boolean")
    assert bits(number, number) > bits(number, Element(("x",), "number")) > bits(number, text)


@pytest.mark.parametrize("text", ["1e400", "9" * 500, "٣", "nan", "1,5", "0x1", "\x00"])
def test_odd_texts_give_a_finite_profile(text: str) -> None:
    profile = profile_of(1, 1, {text: 1})
    assert profile.present == 1
    assert all(abs(quantile) < 1e3 for quantile in profile.quantiles)


values = st.lists(st.one_of(st.none(), st.sampled_from("abcdefghij")), max_size=40)


@given(values, values)
def test_samples_of_partitions_merge_into_the_tables_sample(
    first: list[str | None], second: list[str | None]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sampling, "VALUES", 3)
        expected = sample_of(first + second)
        merged: Counter[tuple[int, str]] = Counter()
        for part in (first, second):
            merged.update(sample_of(part))
    smallest = sorted(merged)[:3]
    assert {key: merged[key] for key in smallest} == expected


def sample_of(texts: list[str | None]) -> dict[tuple[int, str], int]:
    part = _Part("column")
    for start in range(0, len(texts), 4):
        part.add(pa.array(texts[start : start + 4], pa.string()))
    rows = part.batch().to_pylist()
    totals = rows.pop(0)
    assert (totals["rows"], totals["count"]) == (len(texts), sum(t is not None for t in texts))
    return {(row["hash"], row["value"]): row["count"] for row in rows}
