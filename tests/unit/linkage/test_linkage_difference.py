"""Links of records that differ by more than they share."""

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


def lines_of_products(count: int) -> dict[int, str]:
    """Products with the same words, but for a model number: rows have no order."""
    return {-7 * n: f"{_ROUTER} {n * 7_919:x}q{n * 104_729:x}z" for n in range(1, count + 1)}


def test_products_that_differ_in_their_model_are_different() -> None:
    products = lines_of_products(300)
    rows = list(products)
    assert share(products, list(pairwise(rows))) > 0.9


def test_the_same_product_with_a_word_more_is_not() -> None:
    products = lines_of_products(300)
    again = {row - 10_000: f"{name} offer" for row, name in products.items()}
    assert share(products | again, [(row, row - 10_000) for row in products]) == 0.0


def test_people_with_typing_errors_are_not() -> None:
    names: dict[int, str | None] = {}
    of_person: dict[object, list[int]] = {}
    for row, record in enumerate(people(300, 2, seed=3)):
        of_person.setdefault(record.pop("entity"), []).append(row)
        record.pop("id")
        names[row] = normalise(pa.array([" ".join(map(str, filter(None, record.values())))]))[
            0
        ].as_py()
    links = [(first, other) for first, *others in of_person.values() for other in others]
    assert links
    assert share(names, links) < 0.1


def test_what_is_missing_does_not_differ() -> None:
    assert share({1: "margaret", 2: None, 3: None}, [(1, 2), (2, 3)]) == 0.0


def test_no_links_do_not_differ() -> None:
    assert share({1: "a", 2: "b"}, []) == 0.0
