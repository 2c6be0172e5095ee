"""Advice, placements and their explanations, violations and proposals."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from app.admin.api.responses import (
    Control,
    FieldName,
    JsonBody,
    Name,
    OfDatabase,
    json_request,
)
from mediator.placement.advice import ADVICE
from mediator.placement.what_if import SUPPOSITION
from mediator.schema.parse import SCHEMA
from mediator.schema.validation import json_schema_of

__all__ = ["router"]

router = APIRouter()

_ADVICE = json_schema_of(ADVICE)
_ADVICE["properties"]["schema"] = json_schema_of(SCHEMA)


@router.post("/advice", openapi_extra=json_request(_ADVICE))
async def advise(control: Control, body: JsonBody) -> dict[str, Any]:
    """Return where a schema would be placed, on the given systems or on the registered ones.

    A pure function: nothing is stored, and with ``systems`` nothing needs to be registered.
    """
    return await control.advise(body)


@router.get("/advice/scaling")
async def advise_on_scaling(control: Control) -> dict[str, Any]:
    """Recommend how to scale the service and each system, with reasons; do nothing."""
    return await control.scaling()


@router.get("/placements/{database}")
async def explain_database(control: Control, database: Name) -> dict[str, Any]:
    """Explain where a database is placed."""
    return await control.explain(database)


@router.get("/placements/{database}/{class_name}")
async def explain_class(control: Control, database: Name, class_name: Name) -> dict[str, Any]:
    """Explain where a class is placed."""
    return await control.explain(database, class_name)


@router.get("/placements/{database}/{class_name}/{field}")
async def explain_field(
    control: Control, database: Name, class_name: Name, field: FieldName
) -> dict[str, Any]:
    """Explain where a field is placed: candidates, metrics, scores, margins, thresholds."""
    return await control.explain(database, class_name, field)


@router.post("/what-if/{database}", openapi_extra=json_request(json_schema_of(SUPPOSITION)))
async def suppose(control: Control, database: Name, body: JsonBody) -> dict[str, Any]:
    """Return what scores would place elsewhere under other weights, goals or metrics.

    Nothing is changed. Annotations are named by their JSON pointers in the schema.
    """
    return await control.what_if(database, body)


@router.get("/violations")
async def list_violations(control: Control, database: OfDatabase = None) -> dict[str, Any]:
    """List violations of annotations, newest first."""
    return {"items": await control.violations(database)}


@router.get("/proposals")
async def list_proposals(control: Control, database: OfDatabase = None) -> dict[str, Any]:
    """List what scores would place elsewhere today; data moves only by migration."""
    return {"items": await control.proposals(database)}
