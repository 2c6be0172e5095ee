"""Labelled data sets, in the folder that ``PORTOLAN_DATASETS`` names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from benchmarks.harness.synthetic_people import people

__all__ = ["DATASETS", "DataSet", "data_sets", "synthetic"]

DATASETS: Final = "PORTOLAN_DATASETS"


@dataclass(frozen=True, slots=True)
class DataSet:
    """Tables with ``id``, fields as strings, and ``entity``, the label.

    Attributes:
        tables: One to be deduplicated, or two to be linked.
        bar: The pairwise F1 that is to be reached.
    """

    name: str
    tables: Mapping[str, pa.Table]
    bar: float

    @property
    def spec(self) -> Mapping[str, Any]:
        """Nothing but where the tables are and who is who: the rest is proposed from the data."""
        inputs = {name: {"file": f"{name}.csv"} for name in self.tables}
        return {"inputs": inputs, "zero_config": True, "truth": "entity"}


def synthetic(entities: int, seed: int) -> DataSet:
    table = pa.Table.from_pylist(list(people(entities, 2, seed)))
    return DataSet(f"{entities:,} people made up", {"people": table}, 0.95)


def data_sets() -> Iterator[DataSet]:
    folder = os.environ.get(DATASETS)
    if folder is None:
        return
    for part, read in (("febrl", _febrl), ("dblp_acm", _dblp_acm), ("historical_50k", _historical)):
        if (Path(folder) / part).is_dir():
            yield read(Path(folder) / part)


def _febrl(folder: Path) -> DataSet:
    table = _read(folder / "dataset3.csv")
    table = table.rename_columns(["id", *(name.strip() for name in table.column_names[1:])])
    entity = pc.replace_substring_regex(table.column("id"), r"^rec-(\d+)-.*$", r"\1")
    return DataSet("FEBRL 3", {"people": table.append_column("entity", entity)}, 0.99)


def _dblp_acm(folder: Path) -> DataSet:
    acm, dblp = _read(folder / "ACM.csv"), _read(folder / "DBLP2.csv")
    mapping = _read(folder / "DBLP-ACM_perfectMapping.csv")
    same = dict(
        zip(*(mapping.column(name).to_pylist() for name in ("idACM", "idDBLP")), strict=True)
    )
    entity = [same.get(one, f"acm {one}") for one in acm.column("id").to_pylist()]
    tables = {
        "acm": acm.append_column("entity", pa.array(entity)),
        "dblp": dblp.append_column("entity", dblp.column("id")),
    }
    return DataSet("DBLP-ACM", tables, 0.96)


def _historical(folder: Path) -> DataSet:
    table = pq.read_table(folder / "historical_50k.parquet")
    names = {"unique_id": "id", "cluster": "entity"}
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    return DataSet("historical_50k", {"people": table}, 0.80)


def _read(path: Path) -> pa.Table:
    header = path.read_text("utf-8", "replace").partition("\n")[0]
    strings = {name.strip('"\r'): pa.string() for name in header.split(",")}
    convert = csv.ConvertOptions(
        column_types=strings, strings_can_be_null=True, null_values=["", " "]
    )
    data = path.read_text("utf-8", "replace").encode()
    table = csv.read_csv(pa.BufferReader(data), convert_options=convert)
    trimmed = [pc.utf8_trim_whitespace(column.cast("string")) for column in table.columns]
    return pa.table(trimmed, names=table.column_names)
