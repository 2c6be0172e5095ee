"""Labelled data sets, in the folder that ``PORTOLAN_DATASETS`` names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from benchmarks.harness import synthetic_catalogue
from benchmarks.harness.synthetic_people import people
from spark_jobs.linkage.open.forest import components

__all__ = ["DATASETS", "DataSet", "catalogues", "data_sets", "products", "synthetic"]

DATASETS: Final = "PORTOLAN_DATASETS"


@dataclass(frozen=True, slots=True)
class DataSet:
    """Tables with ``id``, fields as strings, and ``entity``, the label.

    Attributes:
        tables: One to be deduplicated, or two to be linked.
        bar: The pairwise F1 to reach.
    """

    name: str
    tables: Mapping[str, pa.Table]
    bar: float

    @property
    def spec(self) -> Mapping[str, Any]:
        """Only the tables and the truth: all else is proposed from the data."""
        inputs = {name: {"file": f"{name}.csv"} for name in self.tables}
        return {"inputs": inputs, "zero_config": True, "truth": "entity"}


def synthetic(entities: int, seed: int) -> DataSet:
    table = pa.Table.from_pylist(list(people(entities, 2, seed)))
    return DataSet(f"{entities:,} people made up", {"people": table}, 0.95)


def products(size: int, seed: int) -> DataSet:
    """Return two catalogues of products, four in five of which are in both."""
    tables = zip(("first", "second"), synthetic_catalogue.catalogues(size, 0.8, seed), strict=True)
    tables_by_name = {name: pa.Table.from_pylist(list(rows)) for name, rows in tables}
    return DataSet(f"{size:,} by {size:,} products made up", tables_by_name, 0.70)


def data_sets() -> Iterator[DataSet]:
    """Yield data sets of people, in one table each."""
    yield from _installed({"febrl": _febrl, "historical_50k": _historical})


def catalogues() -> Iterator[DataSet]:
    """Yield data sets of products and publications, which have long texts."""
    yield from _installed({"abt_buy": _abt_buy, "dblp_acm": _dblp_acm, "cora": _cora})


def _installed(readers: Mapping[str, Callable[[Path], DataSet]]) -> Iterator[DataSet]:
    folder = os.environ.get(DATASETS)
    if folder is None:
        return
    for name, read in readers.items():
        if (Path(folder) / name).is_dir():
            yield read(Path(folder) / name)


def _febrl(folder: Path) -> DataSet:
    table = _read(folder / "dataset3.csv")
    table = table.rename_columns(["id", *(name.strip() for name in table.column_names[1:])])
    entity = pc.replace_substring_regex(table.column("id"), r"^rec-(\d+)-.*$", r"\1")
    return DataSet("FEBRL 3", {"people": table.append_column("entity", entity)}, 0.99)


def _dblp_acm(folder: Path) -> DataSet:
    acm, dblp = _read(folder / "ACM.csv"), _read(folder / "DBLP2.csv")
    mapping = _read(folder / "DBLP-ACM_perfectMapping.csv")
    entity_of = dict(
        zip(*(mapping.column(name).to_pylist() for name in ("idACM", "idDBLP")), strict=True)
    )
    entity = [entity_of.get(id_, f"acm {id_}") for id_ in acm.column("id").to_pylist()]
    tables = {
        "acm": acm.append_column("entity", pa.array(entity)),
        "dblp": dblp.append_column("entity", dblp.column("id")),
    }
    return DataSet("DBLP-ACM", tables, 0.96)


def _abt_buy(folder: Path) -> DataSet:
    abt, buy, pairs = (_read(folder / f"{name}.csv", "|") for name in ("abt", "buy", "gt"))
    entity_of = dict(zip(*(pairs.column(name).to_pylist() for name in ("D2", "D1")), strict=True))
    entity = [entity_of.get(id_, f"buy {id_}") for id_ in buy.column("id").to_pylist()]
    tables = {
        "abt": abt.append_column("entity", abt.column("id")),
        "buy": buy.append_column("entity", pa.array(entity)),
    }
    return DataSet("Abt-Buy", tables, 0.70)


def _cora(folder: Path) -> DataSet:
    table = _read(folder / "cora.csv", "|")
    table = table.rename_columns(["id", *table.column_names[1:-1], "rest"]).drop_columns("rest")
    lines = (folder / "cora_gt.csv").read_text().split()
    left, right = zip(*(map(int, line.split("|")) for line in lines), strict=True)
    rows, roots = components(np.array(left), np.array(right))
    entity = dict(zip(rows.tolist(), roots.tolist(), strict=True))
    labels = [str(entity.get(int(id_), id_)) for id_ in table.column("id").to_pylist()]
    return DataSet("Cora", {"citations": table.append_column("entity", pa.array(labels))}, 0.77)


def _historical(folder: Path) -> DataSet:
    table = pq.read_table(folder / "historical_50k.parquet")
    names = {"unique_id": "id", "cluster": "entity"}
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    return DataSet("historical_50k", {"people": table}, 0.80)


def _read(path: Path, delimiter: str = ",") -> pa.Table:
    header = path.read_text("utf-8", "replace").partition("\n")[0]
    strings = {name.strip('"\r'): pa.string() for name in header.split(delimiter)}
    convert = csv.ConvertOptions(
        column_types=strings, strings_can_be_null=True, null_values=["", " "]
    )
    data = path.read_text("utf-8", "replace").encode()
    # In other files a quotation mark is an ordinary character, such as inches.
    parse = csv.ParseOptions(delimiter=delimiter, quote_char='"' if delimiter == "," else False)
    table = csv.read_csv(pa.BufferReader(data), parse_options=parse, convert_options=convert)
    trimmed = [pc.utf8_trim_whitespace(column.cast("string")) for column in table.columns]
    return pa.table(trimmed, names=table.column_names)
