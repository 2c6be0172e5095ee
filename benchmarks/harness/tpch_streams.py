"""Relations of TPC-H as streams, and overlapping standing queries over them.

Keys are those of TPC-H: a part has four suppliers, an order has some lines, each of a part and one
of its suppliers. Tuples come in random order, and rows are repeated, as by updates, so often that
each supplier, part, nation and region is in a window about once. Times are multiples of 1/64 s,
which are exact as doubles and as microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from mediator.standing.model import Workload
from mediator.standing.parser import parse_workload

__all__ = ["ATTRIBUTES", "FIVE", "LATENESS_S", "TEN", "WINDOW_S", "tpch_workload", "write_backlog"]

ATTRIBUTES: Final = {
    "R": ("regionkey",),
    "N": ("nationkey", "regionkey"),
    "S": ("suppkey", "nationkey"),
    "PS": ("partkey", "suppkey"),
    "P": ("partkey",),
    "L": ("orderkey", "partkey", "suppkey"),
    "O": ("orderkey",),
}
WINDOW_S: Final = 60.0
LATENESS_S: Final = 1.0
"""Nothing is late; but Spark drops tuples not after the watermark, Portolan those before it."""

_REGION, _NATION, _SUPPLIER = (
    "R.regionkey=N.regionkey",
    "N.nationkey=S.nationkey",
    "S.suppkey=PS.suppkey",
)
_PART, _ORDER = "PS.partkey=P.partkey", "L.orderkey=O.orderkey"
_SUPPLIED: Final = ("PS.partkey=L.partkey", "PS.suppkey=L.suppkey")

FIVE: Final[Mapping[str, tuple[str, ...]]] = {
    "q1": (_REGION, _NATION, _SUPPLIER),
    "q2": (_NATION, _SUPPLIER, _PART),
    "q3": (_SUPPLIER, _PART, *_SUPPLIED),
    "q4": (_SUPPLIER, *_SUPPLIED, _ORDER),
    "q5": (_PART, *_SUPPLIED, _ORDER),
}
"""The paper's, by their predicates: R-N-S-PS, N-S-PS-P, S-PS-P-L, S-PS-L-O, P-PS-L-O."""

_SOLD, _BOUGHT = "S.suppkey=L.suppkey", "P.partkey=L.partkey"

TEN: Final[Mapping[str, tuple[str, ...]]] = {
    **FIVE,
    "q6": (_REGION, _NATION, _SOLD),
    "q7": (_NATION, _SOLD, _ORDER),
    "q8": (_NATION, _SUPPLIER, *_SUPPLIED),
    "q9": (_SOLD, _ORDER, _BOUGHT),
    "q10": (_NATION, _SOLD, _BOUGHT),
}
"""Five more join other paths of the same keys."""

_RATE: Final = 1000.0
_SHARES: Final = {"L": 0.6, "O": 0.15, "PS": 0.16, "P": 0.06, "S": 0.0294, "N": 0.0005, "R": 0.0001}
_SUPPLIERS_OF_PART: Final = 4
_TICKS: Final = 64
_BEGINNING_S: Final = 1.0
"""Not 0, Spark's initial watermark: it drops tuples that are not after it."""


def tpch_workload(queries: Mapping[str, tuple[str, ...]], parallelism: int) -> Workload:
    """Return queries with the statistics of the streams that `write_backlog` draws."""
    pairs = {name: [text.split("=") for text in texts] for name, texts in queries.items()}
    streams_read = {
        side.split(".")[0] for sides in pairs.values() for pair in sides for side in pair
    }
    domains = _domains()
    # One key of a pair restricts the other: a supplier is one of the few of its part.
    chances = {"=".join(_SUPPLIED[1].split("=")): 1 / _SUPPLIERS_OF_PART}
    predicates = sorted({text for texts in queries.values() for text in texts})
    return parse_workload(
        {
            "streams": {
                name: {"attributes": list(attributes), "rate": _RATE * _SHARES[name]}
                for name, attributes in ATTRIBUTES.items()
                if name in streams_read
            },
            "queries": {
                name: {
                    "relations": sorted(
                        {side.split(".")[0] for pair in predicate_pairs for side in pair}
                    ),
                    "predicates": predicate_pairs,
                    "window_s": WINDOW_S,
                }
                for name, predicate_pairs in pairs.items()
            },
            "selectivities": [
                {
                    "predicate": predicate.split("="),
                    "selectivity": chances.get(predicate, 1 / domains[predicate.split(".")[-1]]),
                }
                for predicate in predicates
            ],
            "parallelism": parallelism,
        }
    )


def write_backlog(folder: Path, rows: int, rows_of_file: int, seed: int) -> None:
    """Write tuples as Parquet files, one for each batch."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    names = list(_SHARES)
    streams = draw.choice(len(names), rows, p=list(_SHARES.values()))
    keys = _draw_keys(draw, rows)
    for first in range(0, rows, rows_of_file):
        numbers = np.arange(first, min(first + rows_of_file, rows))
        values = [
            _values(names[stream], keys, int(number))
            for stream, number in zip(streams[numbers], numbers, strict=True)
        ]
        table = pa.table(
            {
                "stream": pa.array(names).take(pa.array(streams[numbers])),
                "number": numbers,
                "time_s": _BEGINNING_S + np.floor(numbers / _RATE * _TICKS) / _TICKS,
                "values": pa.array(values, pa.string()),
            }
        )
        # The file source takes files in the order of their times.
        pq.write_table(table, folder / f"{first:012d}.parquet", compression="lz4")


def _values(name: str, keys: Mapping[str, np.ndarray[Any, Any]], number: int) -> str:
    keys_of_row: dict[str, Any] = {key: int(keys[key][number]) for key in ATTRIBUTES[name]}
    return orjson.dumps({**keys_of_row, "comment": f"{name} as of {number}"}).decode()


def _domains() -> dict[str, float]:
    """Return how many values each key has."""
    in_window = {name: share * _RATE * WINDOW_S for name, share in _SHARES.items()}
    return {
        "regionkey": in_window["R"],
        "nationkey": in_window["N"],
        "suppkey": in_window["S"],
        "partkey": in_window["P"],
        "orderkey": in_window["O"],
    }


def _draw_keys(draw: np.random.Generator, rows: int) -> dict[str, np.ndarray[Any, Any]]:
    domains = {name: round(count) for name, count in _domains().items()}
    parts = draw.integers(domains["partkey"], size=rows)
    offset = draw.integers(_SUPPLIERS_OF_PART, size=rows)
    suppliers = domains["suppkey"]
    # As in TPC-H: the suppliers of a part are spread over all of them.
    supplier = (parts + offset * (suppliers // _SUPPLIERS_OF_PART + 1)) % suppliers
    nations = draw.integers(domains["nationkey"], size=rows)
    orders = draw.integers(domains["orderkey"], size=rows)
    return {
        "partkey": parts,
        "suppkey": supplier,
        "nationkey": nations,
        "regionkey": nations % domains["regionkey"],
        "orderkey": orders,
    }
