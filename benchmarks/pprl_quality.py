"""Private linkage: precision and recall on FEBRL 4 from encodings, at Tanimoto 2/3, one to one.

Every field is encoded except the two numbers that almost identify a person. Shape and threshold are
the published ones, fixed beforehand. The commands are those of the README.
"""

from __future__ import annotations

import asyncio
import csv
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import run as call
from tempfile import TemporaryDirectory
from typing import Final

import orjson

from app.commands.demo.failed import Failed
from benchmarks.harness.labelled_data import DATASETS
from benchmarks.harness.report import Measured, Options, Result

__all__ = ["run"]

_OWNERS: Final = {"left": "dataset4a.csv", "right": "dataset4b.csv"}
_EXCLUDED: Final = {"rec_id", "soc_sec_id"}
_BAR_PRECISION: Final = 1.0
_BAR_RECALL: Final = 0.992


async def run(options: Options) -> Measured:
    folder = Path(os.environ.get(DATASETS, "")) / "febrl"
    if not all((folder / name).is_file() for name in _OWNERS.values()):
        raise Failed(f"it takes FEBRL 4: set {DATASETS} to the folder that holds febrl/.")
    return await asyncio.to_thread(_measure, folder, options)


def _measure(folder: Path, options: Options) -> Measured:
    with TemporaryDirectory(prefix="portolan-bench-") as scratch:
        home = Path(scratch)
        sizes = {_prepare(folder / name, home / f"{side}.csv") for side, name in _OWNERS.items()}
        links = _link(home)
    correct = sum(_person(link["left"]) == _person(link["right"]) for link in links)
    options.log(f"{len(links):,} links, {correct:,} of {max(sizes):,} people")
    precision, recall, suffix = (
        correct / len(links),
        correct / max(sizes),
        "on FEBRL 4 from encodings",
    )
    results = [
        Result(f"precision {suffix}", "", precision, bar=_BAR_PRECISION),
        Result(f"recall {suffix}", "", recall, bar=_BAR_RECALL),
    ]
    return Measured(results)


def _prepare(source: Path, target: Path) -> int:
    """Give the columns names without blanks; return the number of records."""
    with source.open(encoding="utf-8") as file:
        rows = [_row(line) for line in csv.DictReader(file, skipinitialspace=True)]
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def _row(line: Mapping[str, str]) -> dict[str, str]:
    row = {name.strip(): value.strip() for name, value in line.items()}
    return {"id": row["rec_id"], **{n: v for n, v in row.items() if n not in _EXCLUDED}}


def _link(home: Path) -> list[dict[str, str]]:
    keys = ("--keys", str(home / "keys.json"))
    _portolan("encode", "--new-keys", *keys)
    for side in _OWNERS:
        source, target = home / f"{side}.csv", home / f"{side}-encoded.csv"
        with source.open(encoding="utf-8") as file:
            fields = ",".join(next(csv.reader(file))[1:])
        _portolan("encode", str(source), str(target), *keys, "--fields", fields)
    sources = {side: {"file": str(home / f"{side}-encoded.csv")} for side in _OWNERS}
    spec = {**sources, "threshold": "2/3", "one_to_one": True}
    (home / "job.json").write_bytes(orjson.dumps({"kind": "linkage.private", "spec": spec}))
    _portolan("job", "run", str(home / "job.json"), "--out", str(home / "links.csv"))
    with (home / "links.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _portolan(*arguments: str) -> None:
    process = call(
        [Path(sys.executable).with_name("portolan"), *arguments], capture_output=True, check=False
    )
    if process.returncode:
        raise Failed(f"portolan {arguments[0]} failed: {process.stderr.decode()[-500:]}")


def _person(record: str) -> str:
    """Return the person of a record: ``rec-1070-org`` and ``rec-1070-dup-0`` have the same."""
    return record.split("-")[1]
