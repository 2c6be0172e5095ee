"""``GET /v1/{database}/openapi.json``: the OpenAPI document of a database, for its readers."""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

import orjson

from app.api.models.reads import DocumentParameters
from app.api.openapi.database_document import database_document
from app.api.resources import Directory
from app.api.responses import JSON_TYPE
from app.api.routed_request import RoutedRequest
from app.http.message import Headers, Response, forbid_body
from app.http.validation import parse_parameters
from mediator.access.model import Scope
from mediator.base.errors import Invalid, Location, NotFound
from mediator.base.offload import offload
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.schema.limits import CLASSES_PER_DATABASE
from mediator.schema.tree import ClassSchema

__all__ = ["DatabaseDocuments"]

_PRIVATE: Final = (b"cache-control", b"private, no-cache")
"""Documents differ between readers, and change with the schema."""

_MAX_FIELDS: Final = 5_000
"""Fields that one document describes, in some hundred bytes each."""

_MAX_CACHED_BYTES: Final = 16 * 2**20


class _Document(NamedTuple):
    body: bytes
    tag: str


_Key: TypeAlias = tuple[str, tuple[str, ...]]


@dataclass(eq=False)
class DatabaseDocuments:
    """Caches documents by database and classes, for the current routing model."""

    _directory: Directory
    _documents: dict[_Key, _Document] = field(default_factory=dict, init=False)
    _model: RoutingModel | None = field(default=None, init=False)
    _building: Lock = field(default_factory=Lock, init=False)

    async def get(self, routed: RoutedRequest) -> Response:
        forbid_body(routed.request)
        classes = await self._classes(routed)
        routed.request.phases.end("parse")
        document = await self._document(routed, classes)
        headers: Headers = [(b"etag", document.tag.encode()), _PRIVATE, (b"vary", b"Authorization")]
        if routed.preconditions().not_modified(document.tag):
            return Response(304, headers)
        return Response(200, [*headers, JSON_TYPE], document.body)

    async def _classes(self, routed: RoutedRequest) -> Sequence[ClassSchema]:
        """Return the requested classes, or all readable ones, sorted by name.

        Raises:
            Invalid: They have more fields than a document can describe.
        """
        database, access = routed.database, routed.access
        requested = parse_parameters(DocumentParameters, routed.request.query).class_names
        if requested is None:
            access.require_some(Scope.READ, database)
            classes = (await self._directory.database(database)).classes
            names = sorted(name for name in classes if access.may_read(database, name))
        else:
            names = sorted(set(requested.split(",")))
            classes = await self._requested_routes(routed, names)
        schemas = [classes[name].schema for name in names]
        if sum(len(schema.fields) for schema in schemas) > _MAX_FIELDS:
            detail = f"names the classes of a document, which have at most {_MAX_FIELDS} fields"
            raise Invalid(f"class {detail}.", locations=[Location("class", detail)])
        return schemas

    async def _requested_routes(
        self, routed: RoutedRequest, names: Sequence[str]
    ) -> Mapping[str, ClassRoute]:
        database, access = routed.database, routed.access
        names = names[: CLASSES_PER_DATABASE + 1]  # of more names, at least one is unknown
        for name in names:
            access.require(Scope.READ, database, name)
        await self._directory.refresh_if_missing(database, *names)
        classes = (await self._directory.database(database)).classes
        for name in names:
            if name not in classes:
                hint = self._directory.did_you_mean(database, name, access)
                raise NotFound(f"There is no such class{hint or '.'}")
        return classes

    async def _document(self, routed: RoutedRequest, classes: Collection[ClassSchema]) -> _Document:
        key = routed.database, tuple(schema.name for schema in classes)
        model = routed.plane.model
        if (document := self._cached(model).get(key)) is not None:
            return document
        async with self._building:  # one at a time: a change makes many clients request the same
            document = self._cached(model).get(key)
            if document is None:
                document = await offload(True, _build_document, routed.database, classes)
                self._keep(model, key, document)
            return document

    def _cached(self, model: RoutingModel) -> dict[_Key, _Document]:
        return self._documents if model is self._model else {}

    def _keep(self, model: RoutingModel, key: _Key, document: _Document) -> None:
        cached_bytes = sum(len(entry.body) for entry in self._cached(model).values())
        if model is not self._model or cached_bytes + len(document.body) > _MAX_CACHED_BYTES:
            self._model, self._documents = model, {}
        self._documents[key] = document


def _build_document(database: str, classes: Collection[ClassSchema]) -> _Document:
    body = orjson.dumps(database_document(database, classes))
    return _Document(body, f'"{blake2b(body, digest_size=16).hexdigest()}"')
