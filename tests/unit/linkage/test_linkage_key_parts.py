"""The parts of values in blocking keys, and the columns of prepared records."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.linkage.open.key_parts import as_days, part_of
from spark_jobs.linkage.open.prepared import prepare_records, prepared_schema
from spark_jobs.linkage.open.rules import KeyPart, Take
from spark_jobs.linkage.open.spec import OpenSpec

NAMES = ["Miriam O'Brien-Ångström", "ångström  OBRIEN miriam", "Mirjam Smith", "  "]
BORN = ["1971-06-24", "19720624", "1971", None]
PARTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"column": "name"}, []),
    ({"column": "name", "take": "prefix", "length": 3}, ["13"]),
    ({"column": "name", "take": "suffix", "length": 3}, []),
    ({"column": "name", "take": "word", "length": 2}, ["12"]),
    ({"column": "name", "take": "word", "length": -1}, []),
    ({"column": "name", "take": "word", "length": 3}, []),
    ({"column": "name", "take": "sorted"}, ["12"]),
    ({"column": "born", "take": "year"}, ["13"]),
    ({"column": "born", "take": "month_day"}, ["12"]),
]
"""Key parts, and the pairs of records 1 to 3 that agree on them."""


def test_blocking_keys_take_the_specified_part_of_a_column() -> None:
    spec = OpenSpec.parse(
        {
            "inputs": {"people": {"file": "people.csv"}},
            "blocking": [[part] for part, _ in PARTS],
            "comparisons": [{"columns": ["name"], "levels": ["exact"]}],
        }
    )
    assert spec.columns == ("born", "name")
    columns = {
        "source": np.zeros(4, np.int32),
        "id": list("1234"),
        "truth": pa.nulls(4, pa.string()),
    }
    table = prepare_records(spec, pa.table({**columns, "v0": BORN, "v1": NAMES}))
    assert table.schema == prepared_schema(spec)
    keys = dict(zip("1234", table.column("keys").to_pylist(), strict=True))
    assert not any(keys["4"])
    for rule, (_, expected) in enumerate(PARTS):
        agreeing = [
            a + b
            for a, b in combinations("123", 2)
            if keys[a][rule] and keys[a][rule] == keys[b][rule]
        ]
        assert agreeing == expected, rule


def test_soundex_is_american_soundex() -> None:
    codes = {
        "robert": "R163",
        "rupert": "R163",
        "ashcraft": "A261",
        "ashcroft": "A261",
        "tymczak": "T522",
        "pfister": "P236",
        "honeyman": "H555",
        "wu": "W000",
        "h": "H000",
    }
    part = KeyPart(column="name", take=Take.SOUNDEX)
    assert part_of(part, pa.array([*codes, "1 2", None])).to_pylist() == [
        *codes.values(), None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1970 01 02", "19700103", "1971-06-24 10 00"], [1.0, 2.0, 539.0]),
        (["1971", "19710229", "19711301", None], [None, None, None, None]),
    ],
)
def test_days_are_parsed_from_valid_dates(
    texts: list[str | None], expected: list[float | None]
) -> None:
    assert as_days(pa.array(texts, pa.string())).to_pylist() == expected
