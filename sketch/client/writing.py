"""Writes, remembered so that this client's reads see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import orjson

from sketch.client.answers import Written
from sketch.client.clock import Clock
from sketch.client.connection import Connection, Response
from sketch.client.own_writes import OwnWrites
from sketch.client.problems import problem_of
from sketch.client.resources import Resource, segment
from sketch.protocol.wire import GroupMap

__all__ = ["PatchForm", "Writer"]

PatchForm = Literal["merge", "json", "update"]
"""Merge Patch (RFC 7396), JSON Patch (RFC 6902), or operators (docs/schema.md)."""

_PATCHES: Mapping[PatchForm, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "update": "application/vnd.portolan.update+json",
}
_WHOLE: Mapping[str, str] = {"Prefer": "return=representation"}
"""Requests the whole object (RFC 7240, section 4.2), so that reads need not."""
_FIRST_ERROR = 400


class Writer:
    """Writes objects of one database.

    `groups` returns the groups of each class, as far as they are known; `keep` receives what was
    written, with the response and when it was sent.
    """

    def __init__(
        self,
        connection: Connection,
        own_writes: OwnWrites,
        groups: Callable[[], GroupMap],
        keep: Callable[[Resource, Response, float], None],
        clock: Clock,
    ) -> None:
        self.__connection = connection
        self.__own_writes = own_writes
        self.__groups = groups
        self.__keep = keep
        self.__clock = clock

    async def post(
        self, class_name: str, value: Any, *, idempotency_key: str | None = None
    ) -> Written:
        """Create an object, or a list of them; the service makes ids for those that have none.

        Args:
            class_name: Their class.
            value: The object, or the list.
            idempotency_key: Makes it safe to send the same again.

        Raises:
            Problem: The service refused; Unreachable: it is not known what came of it.
        """
        objects = value if isinstance(value, list) else [value]
        ids = [each["id"] for each in objects if isinstance(each.get("id"), str)]
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
        """Set an object, or some of its fields, to a value.

        Args:
            class_name: Its class.
            id_: The object.
            value: The fields.
            fields: Only these fields are set; the object must be there.
            if_match: Only if this is still its tag.
            create_only: Only if it is not there.
            idempotency_key: Makes it safe to send the same again.

        Raises:
            PreconditionFailed: It is not as `if_match` or `create_only` say.
            Problem: The service refused; Unreachable: it is not known what came of it.
        """
        headers = _headers(if_match, idempotency_key)
        if create_only:
            headers["If-None-Match"] = "*"
        resource = Resource.of(class_name, id_, fields)
        return await self.__write("PUT", resource, headers, value, resource.fields)

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
        """Change an object.

        Args:
            class_name: Its class.
            id_: The object.
            changes: The patch.
            form: What kind of patch it is.
            if_match: Only if this is still its tag.
            idempotency_key: Makes it safe to send the same again.

        Raises:
            PreconditionFailed: The object is not as `if_match` says.
            Problem: The service refused; Unreachable: it is not known what came of it.
        """
        headers = _headers(if_match, idempotency_key)
        headers["Content-Type"] = _PATCHES[form]
        touched = tuple(changes) if form != "json" and isinstance(changes, Mapping) else ()
        return await self.__write("PATCH", Resource.of(class_name, id_), headers, changes, touched)

    async def delete(
        self,
        class_name: str,
        id_: str,
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> Written:
        """Delete an object.

        Args:
            class_name: Its class.
            id_: The object.
            if_match: Only if this is still its tag.
            idempotency_key: Makes it safe to send the same again.

        Raises:
            NotFound: It is not there.
            PreconditionFailed: It is not as `if_match` says.
            Problem: The service refused; Unreachable: it is not known what came of it.
        """
        headers = _headers(if_match, idempotency_key)
        return await self.__write("DELETE", Resource.of(class_name, id_), headers)

    async def __write(
        self,
        method: str,
        resource: Resource,
        headers: dict[str, str],
        value: Any = None,
        touched: tuple[str, ...] = (),
    ) -> Written:
        """Send a write, remembered by the groups whose fields it touches; none: by all."""
        shown = Resource.of(resource.class_name, resource.id, touched or None)

        def groups() -> tuple[str, ...]:
            return shown.groups(self.__groups()) if touched else ()

        sent = self.__clock()
        with self.__own_writes.writing(resource.class_name, [resource.id], groups):
            response = await self.__send(method, resource.path, {**headers, **_WHOLE}, value)
        self.__keep(resource, response, sent)
        return _written(response)

    async def __send(self, method: str, path: str, headers: dict[str, str], value: Any) -> Response:
        content = None if value is None else orjson.dumps(value)
        if content is not None:
            headers.setdefault("Content-Type", "application/json")
        response = await self.__connection.send(method, path, headers, content)
        if response.status >= _FIRST_ERROR:
            raise problem_of(response.status, response.content, response.headers)
        return response


def _written(response: Response) -> Written:
    return Written(
        orjson.loads(response.content) if response.content else None,
        response.headers.get("etag"),
        response.headers.get("portolan-position"),
        response.headers.get("location"),
    )


def _headers(if_match: str | None = None, idempotency_key: str | None = None) -> dict[str, str]:
    given = {"If-Match": if_match, "Idempotency-Key": idempotency_key}
    return {name: value for name, value in given.items() if value is not None}
