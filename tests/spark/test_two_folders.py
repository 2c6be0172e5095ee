"""The guide to two folders of unknown tables: its jobs, executed as printed."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from spark_jobs.runner.conformance import SampleJob, run_sample
from spark_jobs.runner.local import write_reports
from spark_jobs.runner.run_directory import RunDirectory

_GUIDE: Final = Path(__file__).parents[2] / "docs" / "two-folders.md"
_FIRST: Final = ("Ada", "Bela", "Carl", "Dora", "Emil", "Greta", "Hugo", "Karla", "Lea", "Nora")
_LAST: Final = ("Abel", "Braun", "Curtius", "Dietz", "Falk", "Huber", "Kraus", "Lang", "Noll")
_CITIES: Final = ("Ulm", "Bonn", "Jena", "Kiel", "Bern", "Graz", "Linz", "Wien", "Trier")


def blocks(folder: Path) -> list[Any]:
    """Return the guide's JSON blocks in order, with their tables under `folder`."""
    texts = re.findall(r"```json\n(.*?)```", _GUIDE.read_text(), re.DOTALL)
    return [json.loads(re.sub('"(shop|support)/', rf'"{folder}/\1/', text)) for text in texts]


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    rows = list(rows)
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folders(tmp_path: Path) -> Sequence[tuple[str, str]]:
    """Two folders; returns the matching pairs of customer and person."""
    random = Random(3)
    people = [
        (random.choice(_FIRST), random.choice(_LAST), f"m{n}@x.org", random.choice(_CITIES))
        for n in range(150)
    ]
    write(
        tmp_path / "shop" / "customers.csv",
        (
            {
                "CustID": f"C{n:04}",
                "FirstName": first,
                "LastName": last,
                "EMail": mail,
                "City": city,
            }
            for n, (first, last, mail, city) in enumerate(people[:100])
        ),
    )
    write(
        tmp_path / "shop" / "orders.csv",
        (
            {"OrderNo": 70_000 + n, "Cust": f"C{random.randrange(100):04}", "Total": f"{n}.50"}
            for n in range(300)
        ),
    )
    write(
        tmp_path / "support" / "people.csv",
        (
            {"pid": f"p-{n}", "given_name": first, "surname": last, "mail": mail, "town": city}
            for n, (first, last, mail, city) in enumerate(people[50:])
        ),
    )
    write(
        tmp_path / "support" / "tickets.csv",
        (
            {"nr": n, "person": f"p-{random.randrange(100)}", "text": f"It is broken: {n * 37}"}
            for n in range(200)
        ),
    )
    return [(f"C{n + 50:04}", f"p-{n}") for n in range(50)]


def run(
    job: Mapping[str, Any], spark: SparkSession, path: Path
) -> tuple[list[Any], dict[str, Any]]:
    """Execute a job of the guide; return its rows and reports."""
    directory = RunDirectory(path)
    rows = run_sample(SampleJob(job["kind"], job["spec"]), spark, directory)
    write_reports(directory, path / "reports.json")
    return [json.loads(row) for row in rows], json.loads((path / "reports.json").read_bytes())


@pytest.mark.timeout(900)  # three jobs on Spark, perhaps on a busy machine
def test_the_guide_leads_from_unknown_tables_to_linked_people(
    folders: Sequence[tuple[str, str]], spark: SparkSession, tmp_path: Path
) -> None:
    profile, schemas, renames, records = blocks(tmp_path)
    _, reports = run(profile, spark, tmp_path / "profile")
    proposed = {
        (proposal["dependent"], proposal["referenced"])
        for proposal in reports["references"]["proposals"]
    }
    assert {("orders.Cust", "customers.CustID"), ("tickets.person", "people.pid")} <= proposed
    _, reports = run(schemas, spark, tmp_path / "schemas")
    assert reports["mapping"]["rename"] == renames
    clusters, _ = run(records, spark, tmp_path / "records")
    members: dict[str, dict[str, str]] = {}
    for row in clusters:
        members.setdefault(row["cluster"], {})[row["source"]] = row["record"]
    pairs = {
        (cluster["customers"], cluster["people"])
        for cluster in members.values()
        if len(cluster) > 1
    }
    assert len(pairs & {*folders}) >= 45
    assert len(pairs - {*folders}) <= 2
