"""Columns on different stores: one rule of equality, and proposals that a schema change accepts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mediator.schema.documents import merge_patch
from mediator.stores.port import SystemConfig
from spark_jobs.runner.attempt import RunAttempt
from spark_jobs.runner.control import Control
from spark_jobs.runner.job import parse_job
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.session import LazySession
from spark_jobs.sources.reading import read_input
from tests.process.service import field_on, service

PEOPLE = 30


@pytest.mark.timeout(300)
async def test_columns_on_postgresql_and_mongodb(
    job_systems: list[SystemConfig], spark: SparkSession, job_catalogue: str, tmp_path: Path
) -> None:
    classes: dict[str, Any] = {
        "people": {"fields": {"number": field_on("postgres", "integer")}},
        "notes": {
            "fields": {
                "person": field_on("mongo"),
                "number": field_on("mongo", "float"),
                "about": field_on("mongo", "list", items="string"),
            }
        },
    }
    async with service(job_systems, job_catalogue) as running:
        await running.favour()
        database = await running.put_schema(classes)
        for n in range(PEOPLE):
            await running.create(database, "people", f"p{n}", number=n)
        for n in range(PEOPLE - 5):
            values = {"person": f"p{n}", "number": float(n), "about": [f"p{n + 1}"]}
            await running.create(database, "notes", f"n{n}", **values)
        spec = {"inputs": {name: {"class": name} for name in classes}}
        job = parse_job({"kind": "profile.ind", "spec": spec}, database)
        directory = RunDirectory(tmp_path / "run")
        run = RunAttempt(job, directory, LazySession.of(spark), read_input, Control())
        ending = await asyncio.to_thread(run.execute)
        assert ending.state == "done", ending
        assert ending.result is not None
        rows, _ = ResultFiles(directory.frame(ending.result)).page((0, 0), 100)
        sides = ("dependent_table", "dependent", "referenced_table", "referenced")
        inclusions = [[row[side] for side in sides] for row in rows]
        assert sorted(inclusions) == [
            ["notes", ["about[]"], "people", ["id"]],
            ["notes", ["number"], "people", ["number"]],  # 4.0 on MongoDB is 4 on PostgreSQL
            ["notes", ["person"], "people", ["id"]],
        ]
        proposals = directory.stages["inclusions"].reports["references"]["proposals"]
        (accepted,) = (
            proposal for proposal in proposals if proposal["dependent"] == "notes.person"
        )
        document = {"classes": json.loads(json.dumps(classes))}
        patched: Any = merge_patch(document, accepted["patch"])
        await running.mediator.control.set_schema(database, patched)
        field = patched["classes"]["notes"]["fields"]["person_ref"]
        assert field == {"type": "reference", "to": "people", "index": True}
