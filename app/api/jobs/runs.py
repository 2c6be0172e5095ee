"""``/v1/{database}/jobs``: submits, shows, cancels and resumes runs for `portolan worker`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from app.api.cursors import Cursors
from app.api.following import Followers
from app.api.jobs.progress import run_document, run_feed
from app.api.jobs.rights import RunRights
from app.api.models.jobs import RunListParameters, SubmissionParameters
from app.api.resources import ClassResource, Directory
from app.api.responses import REPLAYED, answer_events, answer_json, next_link
from app.api.routed_request import RoutedRequest
from app.http.idempotency import OperationIds
from app.http.jsonbody import parse_json
from app.http.message import Header, Response, forbid_body, read_body
from app.http.negotiation import EVENT_STREAM, JSON, accepts_by_name
from app.http.paths import parse_pairs, parse_query
from app.http.validation import parse_parameters
from mediator.access.authorisation import Access
from mediator.base.errors import Invalid, Location, MediatorError, NotFound, Unavailable
from mediator.base.suggestions import did_you_mean
from mediator.catalogue.run_queue import CatalogueWorkers
from mediator.catalogue.runs import ENDED, CatalogueRuns, StoredRun
from mediator.query.parser import parse_query_document
from spark_jobs.runner.job import Into, Job, parse_job
from spark_jobs.runner.port import ColumnType, Input
from spark_jobs.runner.specification import ClassSource, SpecInvalid
from spark_jobs.sinks.classes import misfits

__all__ = ["JobBackend", "Jobs", "require_backend"]

_MAX_JOB_BYTES: Final = 2**20
_HEARTBEAT_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class JobBackend:
    """The catalogue of runs, the workers, and the directory with the results of runs."""

    runs: CatalogueRuns
    workers: CatalogueWorkers
    directory: Path


@dataclass(eq=False)
class Jobs:
    _directory: Directory
    _rights: RunRights
    _job_backend: JobBackend | None
    _cursors: Cursors
    _ids: OperationIds
    _max_body_bytes: int
    _followers: Followers

    async def post(self, routed: RoutedRequest) -> Response:
        job_backend = require_backend(self._job_backend)
        routed.media_type(JSON)
        parameters = parse_parameters(SubmissionParameters, routed.request.query)
        raw = await read_body(routed.request, min(self._max_body_bytes, _MAX_JOB_BYTES))
        document = parse_json(raw)
        database_id = (await self._directory.database(routed.database)).id
        job = _parse(document, routed.database)
        await self._check(routed, job)
        await _require_worker(job_backend)
        identity = routed.identity(self._ids, raw)
        routed.request.phases.end("parse")
        with routed.access.submitting() as run_limit:
            run, replayed = await job_backend.runs.submit(
                uuid4().hex,
                (routed.database, database_id),
                job.to_stored(),
                dry_run=parameters.dry_run == "true",
                # Keys are per principal: another one can use the same key for a different job.
                key=None if identity.key is None else identity.derive("job"),
                fingerprint=identity.fingerprint,
                bound=run_limit,
            )
        if replayed:
            # The earlier run shows objects as they were then, which can need more permissions.
            await self._rights.require_view(routed.access, run)
        routed.request.phases.end("store")
        headers = [(b"location", f"/v1/{routed.database}/jobs/{run.id}".encode())]
        return _answer(202, run, [*headers, REPLAYED] if replayed else headers)

    async def list(self, routed: RoutedRequest) -> Response:
        job_backend = require_backend(self._job_backend)
        forbid_body(routed.request)
        database_id = (await self._directory.database(routed.database)).id
        parameters = parse_parameters(RunListParameters, routed.request.query)
        previous = None
        if parameters.after is not None:
            (previous,) = self._cursors.open(_cursor_binding(routed), database_id, parameters.after)
        runs = await job_backend.runs.newest(database_id, previous, parameters.limit)
        last = runs[-1].position if len(runs) == parameters.limit else None
        cursor = (
            None
            if last is None
            else self._cursors.seal(_cursor_binding(routed), database_id, [last])
        )
        items = [run_document(run, detailed=False) for run in runs]
        link = next_link(f"/v1/{routed.database}/jobs", parse_pairs(routed.request.query), cursor)
        return answer_json(200, {"items": items, "next": cursor}, link)

    async def get(self, routed: RoutedRequest) -> Response:
        job_backend, run = await self._find(routed)
        permission = await self._rights.require_view(routed.access, run)
        if not accepts_by_name(routed.request.headers.get(b"accept", ""), EVENT_STREAM):
            return _answer(200, run)
        feed, page = run_feed(job_backend.runs, run, permission)
        return answer_events(self._followers.follow(routed.request, feed, page))

    async def delete(self, routed: RoutedRequest) -> Response:
        """Cancel a run: 202 while a worker still executes it, 200 when it has ended."""
        job_backend, run = await self._find(routed)
        await self._rights.require_control(routed.access, run)
        run = await job_backend.runs.cancel(run.database_id, run.id)
        return _answer(200 if run.state in ENDED else 202, run)

    async def resume(self, routed: RoutedRequest) -> Response:
        """Requeue a failed or cancelled run; finished stages are not repeated."""
        job_backend, run = await self._find(routed)
        await self._rights.require_control(routed.access, run)
        _require_room(routed.access, creates=bool(run.document.get("writes")))
        await _require_worker(job_backend)
        with routed.access.submitting() as run_limit:
            return _answer(202, await job_backend.runs.resume(run.database_id, run.id, run_limit))

    async def _find(self, routed: RoutedRequest) -> tuple[JobBackend, StoredRun]:
        """Find the run of a request without body and parameters."""
        job_backend = require_backend(self._job_backend)
        forbid_body(routed.request)
        parse_query(routed.request.query, frozenset())
        database_id = (await self._directory.database(routed.database)).id
        return job_backend, await job_backend.runs.find(database_id, routed.id)

    async def _check(self, routed: RoutedRequest, job: Job) -> None:
        """Refuse a job that a worker would refuse, or that the sender may not submit."""
        await self._rights.require_submission(routed.access, routed.database, job)
        _require_room(routed.access, creates=job.into is not None)
        _require_priority(routed.access, job)
        for input_ in job.inputs:
            await self._check_input(routed.access, input_, job.pointer_to(input_))
        if job.into is not None:
            await self._check_into(routed.access, job.into, job.columns)

    async def _check_input(self, access: Access, input_: Input, pointer: str) -> None:
        source = input_.source
        assert isinstance(source, ClassSource)  # parse_job refuses files here
        resource = await self._class(access, source.database, source.class_name, pointer)
        source_fields = *map(source.in_table, input_.fields or ()), *source.rename
        unknown = [
            name for name in dict.fromkeys(source_fields) if name not in resource.schema.fields
        ]
        if unknown:
            hint = did_you_mean(unknown[0], resource.schema.fields)
            reason = f"{source.class_name} has no field {', '.join(unknown)}{hint}"
            raise _malformed(pointer, reason)
        names = {*resource.schema.fields} - source.rename.keys()
        if duplicates := sorted(names.intersection(source.rename.values())):
            raise _malformed(
                pointer, f"{source.class_name} has a field {duplicates[0]}: rename it, too"
            )
        if source.filter is not None:
            await self._check_filter(source, pointer)

    async def _check_into(
        self, access: Access, into: Into, columns: Mapping[str, ColumnType]
    ) -> None:
        resource = await self._class(access, into.database, into.class_name, "/into/class")
        if locations := misfits(into, columns, resource.schema):
            detail = "The result does not fit the class: change the class, or write into another."
            raise Invalid(detail, locations=locations)

    async def _class(
        self, access: Access, database: str, class_name: str, pointer: str
    ) -> ClassResource:
        try:
            return await self._directory.find(database, class_name, access)
        except NotFound:
            hint = self._directory.did_you_mean(database, class_name, access)
            raise _malformed(pointer, f"there is no class {class_name}{hint}") from None

    async def _check_filter(self, source: ClassSource, pointer: str) -> None:
        schema = (await self._directory.database(source.database)).schema
        try:
            parse_query_document({"filter": source.filter}, schema, source.class_name, max_limit=1)
        except MediatorError as error:
            locations = [
                Location(pointer + location.pointer, location.detail)
                for location in error.locations
            ]
            raise Invalid(error.detail, locations=locations) from None


def _parse(document: Any, database: str) -> Job:
    try:
        return parse_job(document, database)
    except SpecInvalid as error:
        raise _malformed(error.pointer, error.reason) from None


def require_backend(job_backend: JobBackend | None) -> JobBackend:
    """Return the backend; raise `Unavailable` if there is none."""
    if job_backend is None:
        raise Unavailable("There are no jobs here.", system="spark", retry_after_s=60)
    return job_backend


async def _require_worker(job_backend: JobBackend) -> None:
    workers = await job_backend.workers.seen(_HEARTBEAT_WITHIN_S)
    if not workers.working:
        reason = workers.failure or "No worker has been seen for a minute."
        detail = f"No worker executes jobs: {reason} Start `portolan worker`."
        raise Unavailable(detail, system="spark", retry_after_s=30)


def _require_room(access: Access, *, creates: bool) -> None:
    if creates and access.meter.room <= 0:
        raise access.meter.full()


def _require_priority(access: Access, job: Job) -> None:
    limit = access.meter.limits.priority
    if job.priority > limit:
        raise _malformed("/priority", f"runs of this tenant have a priority of {limit} at most")


def _cursor_binding(routed: RoutedRequest) -> tuple[str, str]:
    return routed.database, "jobs"


def _answer(status: int, run: StoredRun, headers: Sequence[Header] = ()) -> Response:
    return answer_json(status, run_document(run, detailed=True), headers)


def _malformed(pointer: str, reason: str) -> Invalid:
    return Invalid("The job is malformed.", locations=[Location(pointer, reason)])
