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
"""Each reader's document has other classes, and it changes with the schema."""

_MOST_FIELDS: Final = 5_000
"""Fields that one document describes; it has some hundred bytes of each."""

_MOST_CACHED_BYTES: Final = 16 * 2**20


class _Document(NamedTuple):
    body: bytes
    tag: str


_Key: TypeAlias = tuple[str, tuple[str, ...]]


@dataclass(eq=False)
class DatabaseDocuments:
    """Documents by database and classes; they last as long as the routing model."""

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
        """Return the classes requested, or all that may be read, in the order of their names.

        Raises:
            Invalid: They have more fields than a document describes.
        """
        database, access = routed.database, routed.access
        listed = parse_parameters(DocumentParameters, routed.request.query).class_names
        if listed is None:
            access.require_some(Scope.READ, database)
            classes = (await self._directory.database(database)).classes
            names = sorted(name for name in classes if access.may_read(database, name))
        else:
            names = sorted(set(listed.split(",")))
            classes = await self._named(routed, names)
        found = [classes[name].schema for name in names]
        if sum(len(each.fields) for each in found) > _MOST_FIELDS:
            detail = f"names the classes of a document, which have at most {_MOST_FIELDS} fields"
            raise Invalid(f"class {detail}.", locations=[Location("class", detail)])
        return found

    async def _named(self, routed: RoutedRequest, names: Sequence[str]) -> Mapping[str, ClassRoute]:
        database, access = routed.database, routed.access
        names = names[: CLASSES_PER_DATABASE + 1]  # of more, one is not there
        for name in names:
            access.require(Scope.READ, database, name)
        await self._directory.refresh_if_missing(database, *names)
        classes = (await self._directory.database(database)).classes
        for name in names:
            if name not in classes:
                meant = self._directory.did_you_mean(database, name, access)
                raise NotFound(f"There is no such class{meant or '.'}")
        return classes

    async def _document(self, routed: RoutedRequest, classes: Collection[ClassSchema]) -> _Document:
        key = routed.database, tuple(each.name for each in classes)
        model = routed.plane.model
        if (known := self._known(model).get(key)) is not None:
            return known
        async with self._building:  # one at a time: many may request the same after a change
            known = self._known(model).get(key)
            if known is None:
                known = await offload(True, _written, routed.database, classes)
                self._keep(model, key, known)
            return known

    def _known(self, model: RoutingModel) -> dict[_Key, _Document]:
        return self._documents if model is self._model else {}

    def _keep(self, model: RoutingModel, key: _Key, document: _Document) -> None:
        held = sum(len(each.body) for each in self._known(model).values())
        if model is not self._model or held + len(document.body) > _MOST_CACHED_BYTES:
            self._model, self._documents = model, {}
        self._documents[key] = document


def _written(database: str, classes: Collection[ClassSchema]) -> _Document:
    body = orjson.dumps(database_document(database, classes))
    return _Document(body, f'"{blake2b(body, digest_size=16).hexdigest()}"')
