"""Schemas of databases: list, read, set, patch, drop."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Request, Response

from app.admin.api.responses import Body, Control, DatabaseName, DryRun, json_request
from app.admin.api.schema_document import SCHEMA_DOCUMENT
from app.coherence.class_lifecycle import Beginnings
from app.http.negotiation import JSON
from app.http.problems import INVALID, HttpError
from app.security.admin_port import visible
from mediator.base.errors import Location
from mediator.base.offload import offload
from mediator.control.port import BeforeChange, ControlPlane, SchemaChange
from mediator.schema.merge import merge_patch

__all__ = ["router"]

router = APIRouter()

IfMatch = Annotated[str | None, Header(alias="If-Match", description="Version seen, as an ETag.")]


def _announcing(request: Request, database: DatabaseName) -> BeforeChange | None:
    """Return what tells the sketch of the classes of a schema, before they are made."""
    beginnings: Beginnings | None = request.app.state.beginnings
    return partial(beginnings.announce, database) if beginnings is not None else None


def _taking_back(request: Request, control: Control) -> TakingBack:
    """Return what sees to copies of classes, once a document is in force."""
    return TakingBack(request.app.state.beginnings, control)


class TakingBack:
    """Tells the sketch which classes have changed, and which are no more.

    Args:
        beginnings: Tells it; None: there is no sketch.
        control: Knows the classes.
    """

    def __init__(self, beginnings: Beginnings | None, control: ControlPlane) -> None:
        self._beginnings = beginnings
        self._control = control

    async def present(self, database: str) -> frozenset[str]:
        """Name the classes of a database as it is; none if there is no such database."""
        if self._beginnings is None:
            return frozenset()
        names = (it["classes"] for it in await self._control.databases() if it["name"] == database)
        return frozenset(next(names, ()))

    async def __call__(self, database: str, before: frozenset[str], document: Any) -> None:
        """Tell of the classes of a document that is in force, and of those that it lacks."""
        if self._beginnings is not None:
            await self._beginnings.ended(database, before - set(document["classes"]))
            await self._beginnings.changed(database, document["classes"])


TakeBack = Annotated[TakingBack, Depends(_taking_back)]
Announce = Annotated[BeforeChange | None, Depends(_announcing)]


@router.get("/schemas")
async def list_databases(control: Control, request: Request) -> dict[str, Any]:
    """List the databases with their modes, versions and classes: those that the key may see."""
    shown = visible(request)
    found = [item for item in await control.databases() if shown(item["name"])]
    for item in found:
        item["classes"] = [name for name in item["classes"] if shown(item["name"], name)]
    return {"items": found}


@router.get("/schemas/{database}", response_model=dict[str, Any])
async def get_schema(control: Control, database: DatabaseName) -> Response:
    """Read a schema, complete with its defaults, and the placements of its nodes."""
    return await offload(True, _answer, await control.schema(database))


@router.put(
    "/schemas/{database}",
    response_model=dict[str, Any],
    openapi_extra=json_request(SCHEMA_DOCUMENT),
)
async def set_schema(
    control: Control,
    announce: Announce,
    take_back: TakeBack,
    database: DatabaseName,
    body: Body,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Set a schema: validate it, place it, prepare the stores, put it in force.

    A change that would move existing data is refused (409) with the plan of what would move.
    """
    version = _version(if_match)
    before = await take_back.present(database)
    change = await control.set_schema(
        database, body, dry_run=dry_run, version=version, before=announce
    )
    if not dry_run:
        await take_back(database, before, change.document)
    return await offload(True, _answer, change)


@router.patch(
    "/schemas/{database}",
    response_model=dict[str, Any],
    openapi_extra=json_request({"type": "object"}, "application/merge-patch+json"),
)
async def patch_schema(
    control: Control,
    announce: Announce,
    take_back: TakeBack,
    database: DatabaseName,
    body: Body,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Change a part of a schema by a merge patch (RFC 7396)."""
    present = await control.schema(database)
    seen = _version(if_match)
    document = merge_patch(present.document, body)
    before = frozenset(present.document["classes"])
    change = await control.set_schema(
        database,
        document,
        dry_run=dry_run,
        version=present.version if seen is None else seen,
        before=announce,
    )
    if not dry_run:
        await take_back(database, before, change.document)
    return await offload(True, _answer, change)


@router.delete("/schemas/{database}")
async def drop_database(
    control: Control, take_back: TakeBack, database: DatabaseName, dry_run: DryRun = False
) -> dict[str, Any]:
    """Drop a database with all its objects; the dry run counts them."""
    present = await control.schema(database)
    answer = await control.delete_schema(database, dry_run=dry_run)
    if not dry_run:
        await take_back(database, frozenset(present.document["classes"]), {"classes": ()})
    return answer


def _answer(change: SchemaChange) -> Response:
    """Write an answer: one at the limits is megabytes long."""
    told = {field.name: getattr(change, field.name) for field in fields(change)}
    content = orjson.dumps({"schema": told.pop("document"), **told})
    return Response(content, media_type=JSON, headers={"ETag": f'"{change.version}"'})


def _version(if_match: str | None) -> int | None:
    if if_match is None:
        return None
    text = if_match.strip().strip('"')
    if not text.isascii() or not text.isdigit():
        place = Location("If-Match", 'is the ETag of a schema, such as "3"')
        raise HttpError(INVALID, "The version is not understood.", locations=[place])
    return int(text)
