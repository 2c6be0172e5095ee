"""The jobs page: list, show, submit, cancel and resume the runs of a database."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from fastapi import Path, Query, Request, Response

from app.admin.api.responses import Name, OfDatabase
from app.admin.pages.data_client import DataApiRefused, select_database, send
from app.admin.pages.forms import MAX_DOCUMENT_BYTES, indented, read_form
from app.admin.pages.page import Page, page_router, redirect, render
from mediator.catalogue.runs import ENDED
from spark_jobs.kinds import example_of, find_kind, kind_names

__all__ = ["PAGE"]

router = page_router()
_ROWS: Final = 20
_FIELDS: Final = frozenset({"kind", "job", "do"})

RunId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
Kind = Annotated[str | None, Query(max_length=200)]
After = Annotated[str | None, Query(max_length=1000)]


@router.get("/jobs")
async def list_runs(
    request: Request, database: OfDatabase = None, kind: Kind = None, after: After = None
) -> Response:
    names = kind_names()
    kind_name = kind if kind in names else names[0]
    return await _runs(request, database, kind_name, indented(example_of(kind_name)), after=after)


@router.get("/jobs/{database}")
async def list_runs_of(
    request: Request, database: Name, kind: Kind = None, after: After = None
) -> Response:
    """List runs also at the address of a submission, whose page refreshes itself."""
    return await list_runs(request, database, kind, after)


@router.post("/jobs/{database}")
async def submit(request: Request, database: Name) -> Response:
    """Submit a job as it was typed: for its forecast only, or for execution."""
    form = await read_form(request, _FIELDS, MAX_DOCUMENT_BYTES)
    job, forecast = form.get("job", ""), form.get("do") != "start"
    parameters = {"dry_run": str(forecast).lower()}
    try:
        run = await send(request, "POST", f"{database}/jobs", parameters, job.encode())
    except DataApiRefused as refused:
        return await _runs(request, database, form.get("kind", ""), job, refused.problem)
    return _back(database, run["id"])


async def _runs(
    request: Request,
    database: str | None,
    kind: str,
    job: str,
    problem: dict[str, Any] | None = None,
    after: str | None = None,
) -> Response:
    databases, name = await select_database(request, database)
    runs: dict[str, Any] = {"items": [], "next": None}
    if name:
        try:
            runs = await send(request, "GET", f"{name}/jobs", _page(after))
        except DataApiRefused:
            if problem is None:  # else the typed job is shown with its own problem
                raise
    return render(
        request,
        "jobs.html",
        databases=databases,
        database=name,
        listed=runs,
        kinds={kind_name: find_kind(kind_name).summary for kind_name in kind_names()},
        kind=kind,
        job=job,
        problem=problem,
    )


@router.get("/jobs/{database}/{run}")
async def show_run(request: Request, database: Name, run: RunId, after: After = None) -> Response:
    document = await send(request, "GET", f"{database}/jobs/{run}")
    result, result_error = None, None
    if document["state"] == "done" and not document["dry_run"]:
        try:
            result = await send(request, "GET", f"{database}/jobs/{run}/results", _page(after))
        except DataApiRefused as refused:
            result_error = str(refused)
    return render(
        request,
        "run.html",
        database=database,
        run=document,
        ended=document["state"] in ENDED,
        again=orjson.dumps(document["job"]).decode(),
        result=result,
        gone=result_error,
    )


@router.post("/jobs/{database}/{run}/cancel")
async def cancel(request: Request, database: Name, run: RunId) -> Response:
    await send(request, "DELETE", f"{database}/jobs/{run}")
    return _back(database, run)


@router.post("/jobs/{database}/{run}/resume")
async def resume(request: Request, database: Name, run: RunId) -> Response:
    await send(request, "POST", f"{database}/jobs/{run}/resume")
    return _back(database, run)


def _page(after: str | None) -> dict[str, str]:
    return {"limit": str(_ROWS), **({"after": after} if after else {})}


def _back(database: str, run: str) -> Response:
    return redirect(f"/jobs/{database}/{run}")


PAGE = Page("Jobs", "/jobs", "What runs on Spark: how far it is, and what came of it.", router)
