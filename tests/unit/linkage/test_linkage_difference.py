"""Links of records that differ in more than they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from benchmarks.harness.synthetic_people import people
from spark_jobs.linkage.open.difference import differing_share
from spark_jobs.linkage.open.prepared import normalise

_ROUTER = "blue router with four antennas and two years of warranty"


def share(names: Mapping[int, str | None], links: Sequence[tuple[int, int]]) -> float:
    left, right = np.array(links, np.int64).reshape(-1, 2).T
    fields = pa.array(list(names.values()), pa.string())
    return differing_share(left, right, pa.table({"row": [*names], "c0": fields, "c1": fields}))


def product_line(count: int) -> dict[int, str]:
    """Return products that differ only in a model number; rows are unordered."""
    return {-7 * n: f"{_ROUTER} {n * 7_919:x}q{n * 104_729:x}z" for n in range(1, count + 1)}


def test_products_with_other_model_numbers_differ() -> None:
    products = product_line(300)
    rows = list(products)
    assert share(products, list(pairwise(rows))) > 0.9


def test_the_same_product_with_an_additional_word_does_not_differ() -> None:
    products = product_line(300)
    extended = {row - 10_000: f"{name} offer" for row, name in products.items()}
    assert share(products | extended, [(row, row - 10_000) for row in products]) == 0.0


def test_people_with_typing_errors_do_not_differ() -> None:
    names: dict[int, str | None] = {}
    rows_by_person: dict[object, list[int]] = {}
    for row, record in enumerate(people(300, 2, seed=3)):
        rows_by_person.setdefault(record.pop("entity"), []).append(row)
        record.pop("id")
        names[row] = normalise(pa.array([" ".join(map(str, filter(None, record.values())))]))[
            0
        ].as_py()
    links = [(first, other) for first, *others in rows_by_person.values() for other in others]
    assert links
    assert share(names, links) < 0.1


def test_missing_values_do_not_differ() -> None:
    assert share({1: "margaret", 2: None, 3: None}, [(1, 2), (2, 3)]) == 0.0


def test_no_links_do_not_differ() -> None:
    assert share({1: "a", 2: "b"}, []) == 0.0
