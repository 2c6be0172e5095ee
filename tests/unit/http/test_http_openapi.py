"""The OpenAPI description of the data API agrees with the application."""

from __future__ import annotations

import pytest

from app.api.openapi.components import COMPONENTS
from app.api.openapi.document import data_paths
from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.routing.model import EMPTY
from tests.process.data.memory_plane import MemoryPlane
from tests.process.operation.asgi_driver import send_raw
from tests.unit.http.references import references_of

PATHS = data_paths()
METHODS = {"get", "head", "put", "patch", "post", "delete", "options"}


def test_every_reference_resolves() -> None:
    components = COMPONENTS
    for reference in references_of([PATHS, components]):
        _, _, kind, name = reference.split("/")
        assert name in components[kind], reference


def test_operation_ids_are_unique() -> None:
    names = [
        operation["operationId"]
        for path in PATHS.values()
        for operation in path.values()
        if isinstance(operation, dict) and "operationId" in operation
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("template", PATHS)
async def test_documented_methods_are_the_allowed_ones(template: str) -> None:
    app = DataApi(MemoryPlane(EMPTY), DataOptions(b"key"), lambda _: None)
    path = template.format_map(
        {
            "database": "news",
            "class": "articles",
            "id": "a",
            **dict.fromkeys(("run", "flow", "view", "query", "ticket"), "0" * 32),
            "stream": "prices",
        }
    ).encode()
    allowed = (await send_raw(app, "OPTIONS", path)).headers["allow"]
    documented = METHODS & PATHS[template].keys()
    assert documented == {method.lower() for method in allowed.split(", ")}
