"""A service in a separate process with the newspaper, and the worker's side of its jobs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from app.commands.demo.newspaper import DECLARED, SCHEMA, objects
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.run_queue import CatalogueWorkers, RunQueue, TakenRun
from tests.faults.conditions import eventually

__all__ = ["HOSTILE", "HOSTILE_ID", "STATED_METRICS", "Stage"]

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE_ID = "<b onclick=alert(1)>bold"
STATED_METRICS = {
    "redis": {"write_throughput": 40_000, "write_latency": 0.0002, "read_latency": 0.0002},
    "postgres": {"write_throughput": 8_000, "write_latency": 0.001, "read_latency": 0.0004},
    "mongo": {"write_throughput": 2_000, "write_latency": 0.002, "read_latency": 0.001},
}
"""These place `hits` on Redis on every machine."""
LEASE_S = 600.0
"""The lease of a run: longer than any test."""


@dataclass
class Stage:
    """A service whose pages are shown.

    Attributes:
        data: A client of the data API.
        admin: A client of the admin API.
        catalogue: The catalogue, to act as the worker.
        jobs: The folder of results of runs.
        database: Name of the newspaper.
    """

    data: httpx.AsyncClient
    admin: httpx.AsyncClient
    catalogue: Catalogue
    jobs: Path
    database: str

    async def fill(self) -> None:
        """Set the schema, and load the newspaper with a hostile article in it."""
        for name, metrics in STATED_METRICS.items():
            await eventually(partial(self._serves, name))
            kind = (await self._body_of(self.admin.get(f"systems/{name}")))["kind"]
            amendments = {"metrics": metrics, "declared": list(DECLARED.get(kind, ()))}
            await self._body_of(self.admin.patch(f"systems/{name}", json=amendments))
        address = f"schemas/{self.database}"
        await self._body_of(self.admin.put(address, json=SCHEMA))
        patch = {"classes": {"articles": {"cache": {"visibility": "public"}}}}
        await self._body_of(self.admin.patch(address, json=patch))
        newspaper = objects(30)
        newspaper["articles"] |= {
            "hostile": {"title": HOSTILE, "body": "long " * 1_000, "hits": 99},
            HOSTILE_ID: {"title": "an id that is markup", "hits": 98},
        }
        for class_name, members in newspaper.items():
            rows = [{"id": id_, **values} for id_, values in members.items()]
            await self._body_of(self.data.post(f"{self.database}/{class_name}", json=rows))
        await eventually(partial(self._are_relayed, sum(map(len, newspaper.values()))))

    async def heartbeat(self) -> None:
        """Register a worker."""
        await CatalogueWorkers(self.catalogue).heartbeat("test", None)

    async def submit(self) -> str:
        """Submit a job; return the id of its run."""
        await self.heartbeat()
        spec = {"records": {"class": "articles"}, "field": "title"}
        job = {"kind": "example.count", "spec": spec}
        run: str = (await self._body_of(self.data.post(f"{self.database}/jobs", json=job)))["id"]
        return run

    async def take(self) -> TakenRun:
        """Take the run that waits, as a worker does."""
        run = await RunQueue(self.catalogue).take(LEASE_S)
        assert run is not None
        return run

    async def report(self, run: TakenRun, **progress: Any) -> None:
        """Report the progress of a run."""
        await RunQueue(self.catalogue).heartbeat(run, "running", progress, LEASE_S)

    async def end(self, run: TakenRun, state: Any, **ending: Any) -> None:
        """End a run; a done run has a result of two rows, one of them hostile."""
        if state == "done" and not run.dry_run:
            folder = self.jobs / run.id / "stages" / "000001-x"
            folder.mkdir(parents=True)
            table = pa.table({"title": [HOSTILE, "x" * 1_000], "count": [1, 2]})
            pq.write_table(table, folder / "part-0.parquet")
            ending |= {"rows": 2, "result": folder.name}
        await RunQueue(self.catalogue).end(run, state, {}, {"reasons": [], **ending})

    async def _serves(self, name: str) -> bool:
        answer = await self.admin.get(f"systems/{name}")
        return bool(answer.is_success and answer.json()["state"] == "serving")

    async def _are_relayed(self, objects: int) -> bool:
        """Whether the feed, filled in the background, has the creation of that many objects."""
        created: set[tuple[str, str]] = set()
        after = "beginning"
        while True:
            query = f"{self.database}/changes?after={after}&limit=500"
            page = await self._body_of(self.data.get(query))
            if not page["changes"]:
                return len(created) == objects
            created |= {(change["class"], change["object"]) for change in page["changes"]}
            after = page["position"]

    @staticmethod
    async def _body_of(request: Any) -> Any:
        answer = await request
        assert answer.is_success, answer.text
        return answer.json()
