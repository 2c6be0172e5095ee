"""Many operations in one request: each separately (a batch), or all or none (a transaction)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from portolan_client.calls import Call, JsonObject, Reply
from portolan_client.encoding import encode_json
from portolan_client.objects import JSON, Read, key_header
from portolan_client.problems import Problem, problem_from

__all__ = ["Absent", "Operation", "Result", "batch", "commit"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One of many operations, returned by one of the methods below."""

    document: Mapping[str, Any]

    @classmethod
    def get(cls, class_name: str, id_: str, *, if_none_match: str | None = None) -> Self:
        """Read an object, in a batch; the status is 304 if it has the version `if_none_match`."""
        return cls._of("get", class_name, id_, if_none_match=if_none_match)

    @classmethod
    def create(cls, class_name: str, value: Mapping[str, Any], id_: str | None = None) -> Self:
        """Create an object, which must not exist; without an id the service chooses one."""
        return cls._of("create", class_name, id_, body=value)

    @classmethod
    def put(
        cls, class_name: str, id_: str, value: Mapping[str, Any], *, if_match: str | None = None
    ) -> Self:
        """Set an object to `value`, whether it exists or not."""
        return cls._of("put", class_name, id_, body=value, if_match=if_match)

    @classmethod
    def patch(
        cls,
        class_name: str,
        id_: str,
        changes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        if_match: str | None = None,
    ) -> Self:
        """Change an object by a merge patch, or a list by JSON Patch."""
        return cls._of("patch", class_name, id_, body=changes, if_match=if_match)

    @classmethod
    def update(
        cls,
        class_name: str,
        id_: str,
        operators: Mapping[str, Mapping[str, Any]],
        *,
        if_match: str | None = None,
    ) -> Self:
        """Change an object by operators that its store applies."""
        return cls._of("update", class_name, id_, body=operators, if_match=if_match)

    @classmethod
    def delete(cls, class_name: str, id_: str, *, if_match: str | None = None) -> Self:
        return cls._of("delete", class_name, id_, if_match=if_match)

    @classmethod
    def _of(
        cls,
        op: Literal["get", "create", "put", "patch", "update", "delete"],
        class_name: str,
        id_: str | None,
        **members: Any,
    ) -> Self:
        document = {"op": op, "class": class_name, "id": id_, **members}
        return cls({name: value for name, value in document.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one operation.

    Attributes:
        problem: Why it failed; None: it succeeded.
    """

    status: int
    id: str | None
    value: JsonObject | None
    etag: str | None
    position: str | None
    replayed: bool
    partial: tuple[str, ...]
    problem: Problem | None

    def raise_for_problem(self) -> Self:
        """Return the result; raises its `Problem` if it failed."""
        if self.problem is not None:
            raise self.problem
        return self


@dataclass(frozen=True, slots=True)
class Absent:
    """An object that was absent when a transaction read it."""

    class_name: str
    id: str


def batch(
    operations: Iterable[Operation], *, idempotency_key: str | None = None
) -> Call[list[Result]]:
    """Execute at most a thousand operations; each takes effect, or fails, separately."""
    return _post("batch", {"operations": _documents(operations)}, idempotency_key, _parse_batch)


def commit(
    operations: Iterable[Operation],
    reads: Iterable[Read | Absent] = (),
    *,
    idempotency_key: str | None = None,
) -> Call[list[Result]]:
    """Execute all writes if none of `reads` has changed, else none.

    Raises:
        TransactionAborted: An object that was read has changed.
        Problem: One of the writes was refused, so none was executed.
        ValueError: A read has no version.
    """
    body = {"reads": [_read_document(read) for read in reads], "operations": _documents(operations)}
    return _post("transactions", body, idempotency_key, _parse_commit)


def _post(
    path: str, body: Any, key: str | None, read: Callable[[Reply], list[Result]]
) -> Call[list[Result]]:
    headers = {**JSON, **key_header(key)}
    return Call("POST", path, read, headers, encode_json(body))


def _documents(operations: Iterable[Operation]) -> list[Mapping[str, Any]]:
    return [operation.document for operation in operations]


def _read_document(read: Read | Absent) -> JsonObject:
    etag = read.etag if isinstance(read, Read) else None
    if isinstance(read, Read) and etag is None:
        raise ValueError(f"{read.class_name}/{read.id} was read without a version")
    return {"class": read.class_name, "id": read.id, "etag": etag}


def _parse_batch(reply: Reply) -> list[Result]:
    return [_parse_result(document) for document in reply.json()]


def _parse_commit(reply: Reply) -> list[Result]:
    return [_parse_result(document) for document in reply.json_object()["results"]]


def _parse_result(document: JsonObject) -> Result:
    problem = document.get("problem")
    return Result(
        document["status"],
        document.get("id"),
        document.get("body"),
        document.get("etag"),
        document.get("position"),
        document.get("replayed", False),
        tuple(document.get("partial", ())),
        None if problem is None else problem_from(document["status"], problem),
    )
