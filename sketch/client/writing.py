"""Writes, remembered so that this client's reads see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import orjson

from sketch.client.answers import Written
from sketch.client.clock import Clock
from sketch.client.connection import ServiceConnection, ServiceResponse
from sketch.client.own_writes import OwnWrites
from sketch.client.problems import problem_of
from sketch.client.resources import ObjectResource, segment

__all__ = ["ObjectWriter", "PatchForm"]

PatchForm = Literal["merge", "json", "update"]
"""Merge Patch (RFC 7396), JSON Patch (RFC 6902), or operators (docs/schema.md)."""

_PATCHES: Mapping[PatchForm, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "update": "application/vnd.portolan.update+json",
}
_PREFER_WHOLE: Mapping[str, str] = {"Prefer": "return=representation"}
"""Requests the whole object (RFC 7240, section 4.2), so that the next read is a copy."""
_FIRST_ERROR = 400


class ObjectWriter:
    """Writes objects of one database.

    `store` receives the resource, the response and when the write was sent.
    """

    def __init__(
        self,
        connection: ServiceConnection,
        own_writes: OwnWrites,
        store: Callable[[ObjectResource, ServiceResponse, float], None],
        clock: Clock,
    ) -> None:
        self.__connection = connection
        self.__own_writes = own_writes
        self.__store = store
        self.__clock = clock

    async def post(
        self, class_name: str, value: Any, *, idempotency_key: str | None = None
    ) -> Written:
        """Create an object, or a list of objects; the service generates missing ids.

        With an `idempotency_key` a retry is safe.

        Raises:
            Problem: The service refused; Unreachable: the outcome is unknown.
        """
        objects = value if isinstance(value, list) else [value]
        ids = [object_["id"] for object_ in objects if isinstance(object_.get("id"), str)]
        headers = _headers(idempotency_key=idempotency_key)
        with self.__own_writes.writing(class_name, ids):
            response = await self.__send("POST", segment(class_name), headers, value)
        return _written(response)

    async def put(
        self,
        class_name: str,
        id_: str,
        value: Mapping[str, Any],
        *,
        fields: Iterable[str] | None = None,
        if_match: str | None = None,
        create_only: bool = False,
        idempotency_key: str | None = None,
    ) -> Written:
        """Set an object to a value, or some `fields` of an object that exists.

        With `if_match` only if this is still its tag; with `create_only` only if it is absent. With
        an `idempotency_key` a retry is safe.

        Raises:
            PreconditionFailed: The object is not as `if_match` or `create_only` require.
            Problem: The service refused; Unreachable: the outcome is unknown.
        """
        headers = _headers(if_match, idempotency_key)
        if create_only:
            headers["If-None-Match"] = "*"
        resource = ObjectResource.of(class_name, id_, fields)
        return await self.__write("PUT", resource, headers, value)

    async def patch(
        self,
        class_name: str,
        id_: str,
        changes: Any,
        *,
        form: PatchForm = "merge",
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> Written:
        """Change an object; with `if_match` only if this is still its tag.

        With an `idempotency_key` a retry is safe.

        Raises:
            PreconditionFailed: The object is not as `if_match` requires.
            Problem: The service refused; Unreachable: the outcome is unknown.
        """
        headers = _headers(if_match, idempotency_key)
        headers["Content-Type"] = _PATCHES[form]
        return await self.__write("PATCH", ObjectResource.of(class_name, id_), headers, changes)

    async def delete(
        self,
        class_name: str,
        id_: str,
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> Written:
        """Delete an object; with `if_match` only if this is still its tag.

        With an `idempotency_key` a retry is safe.

        Raises:
            NotFound: It is absent.
            PreconditionFailed: It is not as `if_match` requires.
            Problem: The service refused; Unreachable: the outcome is unknown.
        """
        headers = _headers(if_match, idempotency_key)
        return await self.__write("DELETE", ObjectResource.of(class_name, id_), headers)

    async def __write(
        self, method: str, resource: ObjectResource, headers: dict[str, str], value: Any = None
    ) -> Written:
        sent = self.__clock()
        with self.__own_writes.writing(resource.class_name, [resource.id]):
            response = await self.__send(method, resource.path, {**headers, **_PREFER_WHOLE}, value)
        self.__store(resource, response, sent)
        return _written(response)

    async def __send(
        self, method: str, path: str, headers: dict[str, str], value: Any
    ) -> ServiceResponse:
        content = None if value is None else orjson.dumps(value)
        if content is not None:
            headers.setdefault("Content-Type", "application/json")
        response = await self.__connection.send(method, path, headers, content)
        if response.status >= _FIRST_ERROR:
            raise problem_of(response.status, response.content, response.headers)
        return response


def _written(response: ServiceResponse) -> Written:
    return Written(
        orjson.loads(response.content) if response.content else None,
        response.headers.get("etag"),
        response.headers.get("portolan-position"),
        response.headers.get("location"),
    )


def _headers(if_match: str | None = None, idempotency_key: str | None = None) -> dict[str, str]:
    fields = {"If-Match": if_match, "Idempotency-Key": idempotency_key}
    return {name: value for name, value in fields.items() if value is not None}
