"""The routes of the data API: what carries out each method, and what it needs."""

from __future__ import annotations

from typing import Final

from app.api.addresses import Table
from app.api.batch import Batches
from app.api.changes import Changes
from app.api.creation import Creation
from app.api.jobs.results import RunResults
from app.api.jobs.runs import JobBackend, Jobs
from app.api.objects import PATCH_TYPES, Objects
from app.api.options import DataOptions
from app.api.queries import Queries
from app.api.resources import Directory
from app.api.routed_request import Route
from app.api.sketch import Sketches
from app.api.transactions import TransactionRoute
from app.api.transfer.exports import Exports
from app.api.transfer.imports import Imports
from app.coherence.caches import Caches
from app.http.idempotency import OperationIds
from app.http.negotiation import EVENT_STREAM, FILES, JSON, NDJSON, SKETCH
from mediator.access.metered_plane import Transact
from mediator.access.model import Scope
from mediator.changes.subscriptions import Subscriptions

__all__ = ["make_table"]

_READS: Final = {"GET": Scope.READ, "HEAD": Scope.READ}
_WRITES: Final = dict.fromkeys(("POST", "PUT", "PATCH", "DELETE"), Scope.WRITE)
_QUERIES: Final = {"POST": Scope.READ}
_JOBS: Final = dict.fromkeys(("GET", "POST", "DELETE"), Scope.JOBS)


def make_table(
    directory: Directory,
    options: DataOptions,
    subscriptions: Subscriptions | None,
    caches: Caches | None,
    transact: Transact | None,
    job_backend: JobBackend | None,
) -> Table:
    """Make the routes; one without scopes asks for itself, class by class."""
    ids = OperationIds()
    reads = caches.reads if caches else None
    queries = Queries(options, reads)
    jobs = Jobs(directory, job_backend, options, ids)
    return Table(
        object=_object(Objects(options, ids, reads)),
        collection=_collection(queries, Creation(options, ids)),
        batch=_batch(Batches(directory, options, ids)),
        transactions=_transactions(TransactionRoute(transact, directory, options, ids)),
        queries=Route("/v1/{database}/{class}/query", {"POST": queries.post}, scopes=_QUERIES),
        imports=_imports(Imports(options, ids)),
        exports=_exports(Exports(options)),
        changes=_changes(Changes(directory, subscriptions)),
        sketch=_sketch(
            Sketches(directory, caches.sketch if caches else None, options.sketch_valid_s)
        ),
        jobs=_jobs(jobs),
        run=_run(jobs),
        resume=_resume(jobs),
        results=_results(RunResults(directory, job_backend, options)),
    )


def _object(objects: Objects) -> Route:
    return Route(
        "/v1/{database}/{class}/{id}",
        {
            "GET": objects.get,
            "HEAD": objects.get,
            "PUT": objects.put,
            "PATCH": objects.patch,
            "DELETE": objects.delete,
        },
        scopes={**_READS, **_WRITES},
        patch_types=tuple(PATCH_TYPES),
    )


def _collection(queries: Queries, creation: Creation) -> Route:
    return Route(
        "/v1/{database}/{class}",
        {"GET": queries.get, "HEAD": queries.get, "POST": creation.post},
        scopes={**_READS, **_WRITES},
    )


def _batch(batches: Batches) -> Route:
    return Route("/v1/{database}/batch", {"POST": batches.post}, scopes=None, of_class=False)


def _transactions(transactions: TransactionRoute) -> Route:
    return Route(
        "/v1/{database}/transactions", {"POST": transactions.post}, scopes=None, of_class=False
    )


def _imports(imports: Imports) -> Route:
    return Route("/v1/{database}/{class}/import", {"POST": imports.post}, scopes=_WRITES)


def _exports(exports: Exports) -> Route:
    return Route(
        "/v1/{database}/{class}/export",
        {"GET": exports.get, "HEAD": exports.get},
        scopes=_READS,
        offers=NDJSON,
    )


def _changes(changes: Changes) -> Route:
    return Route(
        "/v1/{database}/changes",
        {"GET": changes.get},
        scopes=None,
        of_class=False,
        streams=(EVENT_STREAM,),
    )


def _sketch(sketches: Sketches) -> Route:
    return Route(
        "/v1/{database}/sketch",
        {"GET": sketches.get, "HEAD": sketches.get},
        scopes=None,
        of_class=False,
        offers=SKETCH,
        streams=(JSON,),
    )


def _jobs(jobs: Jobs) -> Route:
    return Route(
        "/v1/{database}/jobs",
        {"POST": jobs.post, "GET": jobs.list},
        scopes=_JOBS,
        of_class=False,
    )


def _run(jobs: Jobs) -> Route:
    return Route(
        "/v1/{database}/jobs/{run}",
        {"GET": jobs.get, "DELETE": jobs.delete},
        scopes=_JOBS,
        of_class=False,
        streams=(EVENT_STREAM,),
    )


def _resume(jobs: Jobs) -> Route:
    return Route(
        "/v1/{database}/jobs/{run}/resume", {"POST": jobs.resume}, scopes=_JOBS, of_class=False
    )


def _results(results: RunResults) -> Route:
    return Route(
        "/v1/{database}/jobs/{run}/results",
        {"GET": results.get},
        scopes=_JOBS,
        of_class=False,
        streams=tuple(FILES),
    )
