"""Transactions, which read through caches and write atomically if their reads are unchanged.

Reads cost as much as cached reads. The commit finds out by their tags whether they are outdated
(docs/transactions.md; BOCC+ of the Cache Sketch paper). An object that caused an abort is read from
the origin from then on, so that the next attempt does not fail because of the same copy.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

import orjson

from sketch.client.answers import OK, Read, ReadAnswer, Written, read_of
from sketch.client.connection import ServiceConnection
from sketch.client.own_writes import OwnWrites
from sketch.client.problems import PortolanError, TransactionAborted, problem_of
from sketch.client.resources import ObjectResource

__all__ = ["Transaction", "Transactor"]

_T = TypeVar("_T")
_RecordKey: TypeAlias = tuple[str, str]
_Op: TypeAlias = Literal["put", "patch", "update", "delete"]

_FIRST_PAUSE_S: Final = 0.005
_MAX_PAUSE_S: Final = 0.2


class Transaction:
    """One attempt: records what it reads, sends what it writes at the end of its block.

    It reads every resource once and repeats that answer from then on. It cannot read an object that
    it has written: read first. Used as ``async with``; an exception in the block sends nothing.

    Attributes:
        results: The result of each write, in order, after the commit.
    """

    def __init__(
        self,
        read: Callable[[ObjectResource], Awaitable[ReadAnswer]],
        commit: Callable[[Transaction], Awaitable[Sequence[Written]]],
    ) -> None:
        self._read = read
        self._commit = commit
        self._answers: dict[ObjectResource, ReadAnswer] = {}
        self._operations: dict[_RecordKey, dict[str, Any]] = {}
        self._is_over = False
        self.results: Sequence[Written] = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None and not self._is_over:
            await self.commit()
        self._is_over = True

    async def get(
        self,
        class_name: str,
        id_: str,
        *,
        fields: Iterable[str] | None = None,
        missing_ok: bool = False,
    ) -> Read:
        """Read an object, from a cache if the bound allows it; the commit validates the read.

        With `fields`, changes of other fields do not abort the transaction. With `missing_ok` an
        absent object has the value None; its absence is validated as well.

        Raises:
            NotFound: It is absent, and `missing_ok` is not set.
            ValueError: The transaction has written the object before, or is over.
            PortolanError: There is no answer.
        """
        resource = ObjectResource.of(class_name, id_, fields)
        self._check_open()
        if (class_name, id_) in self._operations:
            raise ValueError(f"{class_name}/{id_} is read after it was written")
        answer = self._answers.get(resource)
        if answer is None:
            response = await self._read(resource)
            if response.status == OK and not response.etag:
                raise PortolanError(f"{resource.path} was answered without a tag to compare")
            answer = self._answers.setdefault(resource, response)
        return read_of(answer, missing_ok=missing_ok)

    def put(self, class_name: str, id_: str, value: Mapping[str, Any]) -> None:
        """Set an object to a value, whether it exists or not."""
        self._add("put", class_name, id_, dict(value))

    def patch(self, class_name: str, id_: str, changes: Mapping[str, Any]) -> None:
        """Change some fields of an object: a Merge Patch (RFC 7396)."""
        self._add("patch", class_name, id_, dict(changes))

    def update(self, class_name: str, id_: str, changes: Mapping[str, Any]) -> None:
        """Change some fields of an object by operators (docs/schema.md)."""
        self._add("update", class_name, id_, dict(changes))

    def delete(self, class_name: str, id_: str) -> None:
        self._add("delete", class_name, id_)

    async def commit(self) -> Sequence[Written]:
        """Commit atomically; return the result of each write, in order.

        Raises:
            TransactionAborted: An object that was read has changed; `changed` names it.
            Problem: One of the writes was refused, so none was executed.
            Unreachable: The outcome is unknown.
        """
        self._check_open()
        # Before the await: a commit whose outcome is unknown is not sent again.
        self._is_over = True
        self.results = await self._commit(self)
        return self.results

    @property
    def written(self) -> Sequence[_RecordKey]:
        return tuple(self._operations)

    @property
    def body(self) -> dict[str, list[dict[str, Any]]]:
        reads = [
            {"class": resource.class_name, "id": resource.id, "etag": _tag(answer)}
            for resource, answer in self._answers.items()
        ]
        return {"reads": reads, "operations": list(self._operations.values())}

    def _add(self, op: _Op, class_name: str, id_: str, body: Any = None) -> None:
        self._check_open()
        if (class_name, id_) in self._operations:
            raise ValueError(f"{class_name}/{id_} is written twice")
        operation = {"op": op, "class": class_name, "id": id_}
        if body is not None:
            operation["body"] = body
        self._operations[class_name, id_] = operation

    def _check_open(self) -> None:
        if self._is_over:
            raise ValueError("the transaction is over; begin another one")


@dataclass(eq=False)
class Transactor:
    """Sends transactions; remembers what they wrote, and which of their reads were outdated."""

    _read: Callable[[ObjectResource], Awaitable[ReadAnswer]]
    _connection: ServiceConnection
    _own_writes: OwnWrites
    _sleep: Callable[[float], Awaitable[None]]

    def begin(self) -> Transaction:
        return Transaction(self._read, self._send)

    async def run(self, work: Callable[[Transaction], Awaitable[_T]], attempts: int) -> _T:
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        pause = _FIRST_PAUSE_S
        for _ in range(attempts - 1):
            try:
                return await self._attempt(work)
            except TransactionAborted:
                await self._sleep(pause * random.random())  # noqa: S311 - spreads retries
                pause = min(2 * pause, _MAX_PAUSE_S)
        return await self._attempt(work)

    async def _attempt(self, work: Callable[[Transaction], Awaitable[_T]]) -> _T:
        async with self.begin() as transaction:
            return await work(transaction)

    async def _send(self, transaction: Transaction) -> Sequence[Written]:
        body = transaction.body
        if not any(body.values()):
            return ()
        with ExitStack() as stack:
            for class_name, id_ in transaction.written:
                stack.enter_context(self._own_writes.writing(class_name, [id_]))
            response = await self._connection.post("transactions", orjson.dumps(body))
        if response.status == OK:
            return [_written(result) for result in _results(response.content)]
        problem = problem_of(response.status, response.content, response.headers)
        if isinstance(problem, TransactionAborted):
            for class_name, id_ in problem.changed:
                self._own_writes.doubt(class_name, id_)
        raise problem


def _tag(answer: ReadAnswer) -> str | None:
    """Return the tag to compare; a compressing proxy makes it weak, but the version is the same."""
    return answer.etag.removeprefix("W/") if answer.etag and answer.status == OK else None


def _results(content: bytes) -> list[dict[str, Any]]:
    try:
        results: list[dict[str, Any]] = orjson.loads(content)["results"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise PortolanError("malformed response to a committed transaction") from error
    return results


def _written(result: Mapping[str, Any]) -> Written:
    return Written(result.get("body"), result.get("etag"), None, None)
