"""Overrides of placements: an operator chooses a system for a while, with a reason."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from pydantic import AwareDatetime, Field

from app.admin.api.responses import NAME, Control, Document, DryRun, FieldName, Name
from app.admin.api.schemas import By, answer_of
from app.http.framework import SmallBodies
from mediator.base.offload import offload
from mediator.catalogue.schema_revisions import Author
from mediator.control.plane import ControlPlane
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.schema.overrides import Override

__all__ = ["OverrideDocument", "change_override", "router"]

router = APIRouter(route_class=SmallBodies)

_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"


class OverrideDocument(Document):
    """An override to be set."""

    system: str = Field(pattern=NAME, description="The system to place it on.")
    reason: str = Field(min_length=1, max_length=300, pattern=_PRINTABLE, description="Why.")
    until: AwareDatetime = Field(description="When it expires.")


@router.get("/overrides/{database}")
async def list_overrides(control: Control, database: Name) -> dict[str, Any]:
    """List the overrides in force, by node."""
    return {"items": await control.overrides(database)}


@router.put("/overrides/{database}/{class_name}", response_model=dict[str, Any])
async def override_class(
    control: Control,
    database: Name,
    class_name: Name,
    document: OverrideDocument,
    author: By,
    dry_run: DryRun = False,
) -> Response:
    """Override the placement of a class, whatever its schema requires.

    It is placed there, and stays there by scores, until the override ends. Data is not moved: if
    there is some elsewhere, the override is refused (409) with the plan of the moves.
    """
    return await _change(control, database, class_name, document, author, dry_run=dry_run)


@router.put("/overrides/{database}/{class_name}/{field}", response_model=dict[str, Any])
async def override_field(
    control: Control,
    database: Name,
    class_name: Name,
    field: FieldName,
    document: OverrideDocument,
    author: By,
    dry_run: DryRun = False,
) -> Response:
    """Override the placement of a field and its cache group, as that of a class."""
    return await _change(
        control, database, f"{class_name}.{field}", document, author, dry_run=dry_run
    )


@router.delete("/overrides/{database}/{class_name}", response_model=dict[str, Any])
async def end_override_of_class(
    control: Control, database: Name, class_name: Name, author: By, dry_run: DryRun = False
) -> Response:
    """End an override of a class: it is placed as before, unless it holds data."""
    return await _change(control, database, class_name, None, author, dry_run=dry_run)


@router.delete("/overrides/{database}/{class_name}/{field}", response_model=dict[str, Any])
async def end_override_of_field(
    control: Control,
    database: Name,
    class_name: Name,
    field: FieldName,
    author: By,
    dry_run: DryRun = False,
) -> Response:
    """End an override of a field, as that of a class."""
    return await _change(control, database, f"{class_name}.{field}", None, author, dry_run=dry_run)


async def _change(
    control: ControlPlane,
    database: str,
    node: str,
    document: OverrideDocument | None,
    author: Author | None,
    *,
    dry_run: bool,
) -> Response:
    change = await change_override(control, database, node, document, author, dry_run=dry_run)
    return await offload(True, answer_of, change)


async def change_override(
    control: ControlPlane,
    database: str,
    node: str,
    document: OverrideDocument | None,
    author: Author | None,
    *,
    dry_run: bool,
) -> SchemaChange:
    """Override the placement of a node, or end that (without a document); raises as `set_schema`.

    It sets the schema unchanged, to be decided, checked and propagated like other changes.
    """
    override = Override(document.system, document.reason, document.until) if document else None
    schema, version = await control.stored_schema(database)
    return await control.set_schema(
        database,
        schema,
        dry_run=dry_run,
        version=version,
        options=ChangeOptions(unchecked=True, overrides={node: override}),
        author=author,
    )
