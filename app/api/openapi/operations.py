"""Operations of the data API in OpenAPI 3.1: their parameters, bodies and answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from app.api.models.common import ref
from app.api.openapi.components import answer
from app.api.openapi.parameters import parameters_of
from app.http.negotiation import JSON
from app.http.validation import Parameters

__all__ = [
    "ALWAYS",
    "CONDITIONAL",
    "CREATING",
    "TEXT",
    "WITH_BODY",
    "created_object",
    "either",
    "empty",
    "in_json",
    "operation",
    "parameters_named",
    "reads",
]

ALWAYS: Final = (400, 401, 403, 404, 406, 409, 429, 500, 503)
WITH_BODY: Final = (413, 415)
CREATING: Final = (*WITH_BODY, 507)
CONDITIONAL: Final = (412, 428)
TEXT: Final[dict[str, Any]] = {"schema": {"type": "string"}}


def operation(
    name: str | None,
    summary: str,
    answers: dict[int, Any],
    parameters: Iterable[str] = (),
    problems: tuple[int, ...] = ALWAYS,
    query: type[Parameters] | None = None,
    body: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Describe an operation.

    `answers` are by status, `parameters` are names of components, and `body` has the names of
    schemas by media type.
    """
    responses = answers | {status: ref("responses", str(status)) for status in problems}
    described: dict[str, Any] = {
        **({"operationId": name} if name else {}),
        "summary": summary,
        "tags": ["data"],
        "parameters": [*parameters_named(parameters), *(parameters_of(query) if query else ())],
        "responses": {str(status): responses[status] for status in sorted(responses)},
    }
    if body:
        content = {type_: {"schema": ref("schemas", schema)} for type_, schema in body.items()}
        described["requestBody"] = {"required": True, "content": content}
    return described


def reads(
    names: tuple[str, str], summary: str, answers: dict[int, Any], *arguments: Any, **keywords: Any
) -> dict[str, Any]:
    """Describe GET and HEAD, which has the same answers without content."""
    head_answers = {
        status: {name: value for name, value in answer.items() if name != "content"}
        for status, answer in answers.items()
    }
    get, head = names
    return {
        "get": operation(get, summary, answers, *arguments, **keywords),
        "head": operation(head, summary, head_answers, *arguments, **keywords),
    }


def parameters_named(names: Iterable[str]) -> list[dict[str, Any]]:
    return [ref("parameters", name) for name in names]


def in_json(schema: str, *headers: str, texts: Iterable[str] = ()) -> dict[str, Any]:
    """Describe an answer in JSON, or in text of other media types."""
    content = {JSON: {"schema": ref("schemas", schema)}, **dict.fromkeys(texts, TEXT)}
    return {**answer("Done", *headers), "content": content}


def either(first: str, second: str, *headers: str) -> dict[str, Any]:
    schemas = [ref("schemas", first), ref("schemas", second)]
    return {**answer("Done", *headers), "content": {JSON: {"schema": {"anyOf": schemas}}}}


def created_object(*headers: str) -> dict[str, Any]:
    return {**in_json("StoredObject", *headers), "description": "Created"}


def empty(*headers: str) -> dict[str, Any]:
    return answer("Without a body", *headers)
