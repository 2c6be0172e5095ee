"""The routes of the data API: what carries out each method, and what it needs."""

from __future__ import annotations

from typing import Final

from app.api.batch import Batches
from app.api.changes import Changes
from app.api.creation import Creation
from app.api.exports import Exports
from app.api.imports import Imports
from app.api.jobs import JobDesk, Jobs
from app.api.objects import PATCH_TYPES, Objects
from app.api.options import DataOptions
from app.api.queries import Queries
from app.api.resources import Directory
from app.api.routes import Route, Table
from app.api.run_results import FILES, RunResults
from app.api.sketch import Sketches
from app.api.transactions import Transact, TransactionRoute
from app.coherence.caches import Caches
from app.http.idempotency import OperationIds
from app.http.negotiation import EVENT_STREAM, JSON, NDJSON, SKETCH
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
    desk: JobDesk | None,
) -> Table:
    """Make the routes; one without scopes asks for itself, class by class."""
    ids = OperationIds()
    jobs = Jobs(directory, desk, options, ids)
    reads = caches.reads if caches else None
    objects = Objects(options, ids, reads)
    sketches = Sketches(directory, caches.sketch if caches else None, options.sketch_valid_s)
    queries = Queries(options, reads)
    exports = Exports(options)
    return Table(
        object=Route(
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
        ),
        collection=Route(
            "/v1/{database}/{class}",
            {
                "GET": queries.get,
                "HEAD": queries.get,
                "POST": Creation(options, ids).post,
            },
            scopes={**_READS, **_WRITES},
        ),
        batch=Route(
            "/v1/{database}/batch",
            {"POST": Batches(directory, options, ids).post},
            scopes=None,
            of_class=False,
        ),
        transactions=Route(
            "/v1/{database}/transactions",
            {"POST": TransactionRoute(transact, directory, options, ids).post},
            scopes=None,
            of_class=False,
        ),
        queries=Route("/v1/{database}/{class}/query", {"POST": queries.post}, scopes=_QUERIES),
        imports=Route(
            "/v1/{database}/{class}/import",
            {"POST": Imports(options, ids).post},
            scopes=_WRITES,
        ),
        exports=Route(
            "/v1/{database}/{class}/export",
            {"GET": exports.get, "HEAD": exports.get},
            scopes=_READS,
            offers=NDJSON,
        ),
        changes=Route(
            "/v1/{database}/changes",
            {"GET": Changes(directory, subscriptions).get},
            scopes=None,
            of_class=False,
            streams=(EVENT_STREAM,),
        ),
        sketch=Route(
            "/v1/{database}/sketch",
            {"GET": sketches.get, "HEAD": sketches.get},
            scopes=None,
            of_class=False,
            offers=SKETCH,
            streams=(JSON,),
        ),
        jobs=Route(
            "/v1/{database}/jobs",
            {"POST": jobs.post, "GET": jobs.list},
            scopes=_JOBS,
            of_class=False,
        ),
        run=Route(
            "/v1/{database}/jobs/{run}",
            {"GET": jobs.get, "DELETE": jobs.delete},
            scopes=_JOBS,
            of_class=False,
            streams=(EVENT_STREAM,),
        ),
        resume=Route(
            "/v1/{database}/jobs/{run}/resume", {"POST": jobs.resume}, scopes=_JOBS, of_class=False
        ),
        results=Route(
            "/v1/{database}/jobs/{run}/results",
            {"GET": RunResults(desk, options).get},
            scopes=_JOBS,
            of_class=False,
            streams=tuple(FILES),
        ),
    )
