"""``GET /v1/{database}/jobs/{run}/results``: pages of JSON, or the whole result as a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.api.cursors import Cursors
from app.api.jobs.rights import RunRights
from app.api.jobs.runs import JobBackend, require_backend
from app.api.models.jobs import ResultParameters
from app.api.resources import Directory
from app.api.responses import NO_STORE, answer_json, next_link
from app.api.routed_request import RoutedRequest
from app.http.message import Response, forbid_body
from app.http.negotiation import FILES, accepts_by_name
from app.http.paths import parse_pairs, parse_query
from app.http.validation import parse_parameters
from mediator.base.errors import Conflict, Invalid, Location, ResultGone, Unavailable
from mediator.catalogue.runs import StoredRun
from spark_jobs.runner.results import ResultFiles

__all__ = ["RunResults"]


@dataclass(eq=False)
class RunResults:
    """`_page_limit` is in rows."""

    _directory: Directory
    _rights: RunRights
    _job_backend: JobBackend | None
    _cursors: Cursors
    _page_limit: int

    async def get(self, routed: RoutedRequest) -> Response:
        """Answer a page of rows, or all rows if Accept names a file type."""
        job_backend = require_backend(self._job_backend)
        forbid_body(routed.request)
        accept = routed.request.headers.get(b"accept", "")
        type_ = next((type_ for type_ in FILES if accepts_by_name(accept, type_)), None)
        if type_ is not None:
            parse_query(routed.request.query, frozenset())
        parameters = parse_parameters(ResultParameters, routed.request.query)
        database_id = (await self._directory.database(routed.database)).id
        run = await job_backend.runs.find(database_id, routed.id)
        await self._rights.require_view(routed.access, run)
        files = await asyncio.to_thread(_open, job_backend.directory, run)
        if type_ is None:
            return await self._page(routed, run, files, parameters)
        chunks = _chunks(files.stream(FILES[type_]))
        return Response(200, [(b"content-type", type_.encode()), NO_STORE], chunks=chunks)

    async def _page(
        self,
        routed: RoutedRequest,
        run: StoredRun,
        files: ResultFiles,
        parameters: ResultParameters,
    ) -> Response:
        binding = (run.database, "results", run.id)
        file, row = 0, 0
        if parameters.after is not None:
            file, row = self._cursors.open(binding, run.database_id, parameters.after)
        if parameters.limit > self._page_limit:
            locations = [Location("limit", f"at most {self._page_limit} are allowed")]
            raise Invalid("The page is too large.", locations=locations)
        try:
            rows, position = await asyncio.to_thread(files.page, (file, row), parameters.limit)
        except FileNotFoundError:
            raise _gone() from None
        cursor = (
            None
            if position is None
            else self._cursors.seal(binding, run.database_id, list(position))
        )
        path = f"/v1/{run.database}/jobs/{run.id}/results"
        link = next_link(path, parse_pairs(routed.request.query), cursor)
        return answer_json(200, {"items": rows, "next": cursor}, link)


def _open(directory: Path, run: StoredRun) -> ResultFiles:
    result = run.outcome.get("result")
    if result is None:
        reason = "was a dry run" if run.dry_run else f"is {run.state}"
        raise Conflict(f"The run {reason}: it has no result.", extra={"state": run.state})
    try:
        return ResultFiles(directory / run.id / "stages" / result)
    except FileNotFoundError:
        raise _gone() from None


async def _chunks(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces that another thread produces."""
    while True:
        try:
            piece = await asyncio.to_thread(next, pieces, None)
        except OSError as error:
            raise Unavailable("The rest of the result cannot be read.", system="jobs") from error
        if piece is None:
            return
        yield piece


def _gone() -> ResultGone:
    return ResultGone("The result is no longer kept; submit the job again.")
