"""A data API with jobs, and a worker's operations on its runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from app.api.jobs.runs import JobBackend
from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.catalogue.run_queue import TakenRun
from mediator.service import Mediator

ROWS = 25


@dataclass
class Office:
    """A data API with jobs, and the worker's side of them."""

    mediator: Mediator
    database: str
    directory: Path
    client: httpx.AsyncClient = field(init=False)
    app: DataApi = field(init=False)

    def __post_init__(self) -> None:
        backend = JobBackend(self.mediator.runs, self.mediator.workers, self.directory)
        options = DataOptions(cursor_key=b"secret", page_limit=10)
        self.app = DataApi(
            self.mediator.data, options, lambda _: None, DataServices(job_backend=backend)
        )
        url = f"http://test/v1/{self.database}/"
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=url)

    def job(self, **spec: Any) -> dict[str, Any]:
        return {
            "kind": "example.count",
            "spec": {"records": {"class": "people"}, "field": "city", **spec},
        }

    async def submit(self, **headers: str) -> dict[str, Any]:
        request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.client.post("jobs", json=self.job(), headers=request_headers)
        assert answer.status_code == 202, answer.text
        document: dict[str, Any] = answer.json()
        assert answer.headers["location"] == f"/v1/{self.database}/jobs/{document['id']}"
        return document

    async def take(self) -> TakenRun:
        run = await self.mediator.queue.take(60)
        assert run is not None
        return run

    async def finish(self, run: TakenRun) -> None:
        """End a run as done, with a result in two files."""
        result = self.directory / run.id / "stages" / "000001-x"
        result.mkdir(parents=True)
        for fragment, numbers in enumerate((range(10), range(10, ROWS))):
            table = pa.table({"n": list(numbers), "city": [f"c{n}" for n in numbers]})
            pq.write_table(table, result / f"part-{fragment}.parquet")
        ending = {"reasons": [], "rows": ROWS, "result": result.name}
        assert await self.mediator.queue.end(run, "done", {}, ending)
