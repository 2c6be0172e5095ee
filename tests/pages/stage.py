"""A service in a process of its own with the newspaper in it, and the worker's side of its jobs."""

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

__all__ = ["HOSTILE", "HOSTILE_ID", "STATED", "Stage"]

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE_ID = "<b onclick=alert(1)>bold"
STATED = {
    "redis": {"write_throughput": 40_000, "write_latency": 0.0002, "read_latency": 0.0002},
    "postgres": {"write_throughput": 8_000, "write_latency": 0.001, "read_latency": 0.0004},
    "mongo": {"write_throughput": 2_000, "write_latency": 0.002, "read_latency": 0.001},
}
"""So that `hits` is on Redis on every machine."""
LEASE_S = 600.0
"""Of a run: longer than a test may take."""


@dataclass
class Stage:
    """What the pages are shown on.

    Attributes:
        data: A client of the data API.
        admin: A client of the admin API.
        catalogue: The catalogue, to act as the worker.
        jobs: Where results of runs are.
        database: Name of the newspaper.
    """

    data: httpx.AsyncClient
    admin: httpx.AsyncClient
    catalogue: Catalogue
    jobs: Path
    database: str

    async def fill(self) -> None:
        """Set the schema, and load the newspaper with a hostile article in it."""
        for name, metrics in STATED.items():
            await eventually(partial(self._serves, name))
            kind = (await self._got(self.admin.get(f"systems/{name}")))["kind"]
            amendments = {"metrics": metrics, "declared": list(DECLARED.get(kind, ()))}
            await self._got(self.admin.patch(f"systems/{name}", json=amendments))
        address = f"schemas/{self.database}"
        await self._got(self.admin.put(address, json=SCHEMA))
        cached = {"classes": {"articles": {"cache": {"visibility": "public"}}}}
        await self._got(self.admin.patch(address, json=cached))
        newspaper = objects(30)
        newspaper["articles"] |= {
            "hostile": {"title": HOSTILE, "body": "long " * 1_000, "hits": 99},
            HOSTILE_ID: {"title": "an id that is markup", "hits": 98},
        }
        for class_name, members in newspaper.items():
            created = [{"id": id_, **values} for id_, values in members.items()]
            await self._got(self.data.post(f"{self.database}/{class_name}", json=created))
        await eventually(partial(self._are_relayed, sum(map(len, newspaper.values()))))

    async def heartbeat(self) -> None:
        """Register a worker."""
        await CatalogueWorkers(self.catalogue).heartbeat("test", None)

    async def submit(self) -> str:
        """Submit a job; return the id of its run."""
        await self.heartbeat()
        spec = {"records": {"class": "articles"}, "field": "title"}
        job = {"kind": "example.count", "spec": spec}
        run: str = (await self._got(self.data.post(f"{self.database}/jobs", json=job)))["id"]
        return run

    async def take(self) -> TakenRun:
        """Take the run that waits, as a worker does."""
        taken = await RunQueue(self.catalogue).take(LEASE_S)
        assert taken is not None
        return taken

    async def report(self, taken: TakenRun, **progress: Any) -> None:
        """Report the progress of a run."""
        await RunQueue(self.catalogue).heartbeat(taken, "running", progress, LEASE_S)

    async def end(self, taken: TakenRun, state: Any, **ending: Any) -> None:
        """End a run; one that is done has a result of two rows, one of them hostile."""
        if state == "done" and not taken.dry_run:
            folder = self.jobs / taken.id / "stages" / "000001-x"
            folder.mkdir(parents=True)
            table = pa.table({"title": [HOSTILE, "x" * 1_000], "count": [1, 2]})
            pq.write_table(table, folder / "part-0.parquet")
            ending |= {"rows": 2, "result": folder.name}
        await RunQueue(self.catalogue).end(taken, state, {}, {"reasons": [], **ending})

    async def _serves(self, name: str) -> bool:
        answer = await self.admin.get(f"systems/{name}")
        return bool(answer.is_success and answer.json()["state"] == "serving")

    async def _are_relayed(self, objects: int) -> bool:
        """Whether the feed has the creation of so many objects: it is filled in the background."""
        found: set[tuple[str, str]] = set()
        after = "beginning"
        while True:
            query = f"{self.database}/changes?after={after}&limit=500"
            page = await self._got(self.data.get(query))
            if not page["changes"]:
                return len(found) == objects
            found |= {(each["class"], each["object"]) for each in page["changes"]}
            after = page["position"]

    @staticmethod
    async def _got(request: Any) -> Any:
        answer = await request
        assert answer.is_success, answer.text
        return answer.json()
