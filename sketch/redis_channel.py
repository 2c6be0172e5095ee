"""One connection to the sketch's Redis, and the life of the server that is behind it.

A server that was restarted, or another one that took over, may have forgotten what the sketch
knew. Every call therefore tells the life of the server that it is meant for, and the script
compares it with the life that the part was left by. A life is learned anew with every connection,
and no connection outlives the server it leads to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha1
from typing import Any, Final
from uuid import uuid4

import hiredis
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import NoScriptError, RedisError, ResponseError

from sketch.port import SketchUnavailable

__all__ = ["Channel", "ScriptCall", "connect"]

_ANOTHER_LIFE: Final = -1
_KEYS: Final = 13


@dataclass(slots=True)
class ScriptCall:
    """Steps on one part, taken at once.

    Attributes:
        keys: Names of the part's keys.
        expiring: How many keys may expire in passing.
        steps: Names and arguments of the steps.
        standing: `sure`: the life told is the server's, whatever the part says; `fresh`: a part
            that is not there yet has never been.
    """

    keys: Sequence[bytes]
    expiring: int
    steps: list[Any] = field(default_factory=list)
    standing: str = ""


class Channel:
    """Sends calls of the sketch's script, all of one round trip in one write.

    Args:
        redis: The client whose settings the connection is made with.
        script: The script.
        mark: Becomes part of every life: parts of another mark are begun anew.
        timeout_s: Longest wait for an answer.
    """

    def __init__(self, redis: Redis, script: str, mark: str, timeout_s: float) -> None:
        self._pool = redis.connection_pool
        self._script = script.encode()
        self._sha = sha1(self._script, usedforsecurity=False).hexdigest().encode()
        self._mark = mark
        self._timeout_s = timeout_s
        self._connection: AbstractConnection | None = None
        self._life = ""
        self._turn = asyncio.Lock()

    async def ask(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Return the answer to each call, or the error it was answered with.

        Raises:
            SketchUnavailable: The server did not answer.
        """
        return await self._twice(partial(self._settled, calls))

    async def time_us(self) -> int:
        """Return the server's time.

        Raises:
            SketchUnavailable: The server did not answer.
        """
        ((seconds, micros),) = await self._twice(self._time)
        return int(seconds) * 1_000_000 + int(micros)

    async def _time(self) -> list[Any]:
        return await _exchange(await self._connected(), [(b"TIME",)])

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)

    async def _twice(self, exchange: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """Try a second time if an idle connection has died; every step may be taken twice."""
        async with self._turn:
            reused = self._connection is not None
            try:
                return await self._once(exchange)
            except SketchUnavailable as error:
                if not reused or isinstance(error.__cause__, TimeoutError):
                    raise
            return await self._once(exchange)

    async def _once(self, exchange: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await exchange()
        except (RedisError, OSError) as error:
            await self.close()
            raise SketchUnavailable("The sketch's Redis does not answer.") from error
        except BaseException:
            await self.close()  # answers still to come would be taken for others
            raise

    async def _settled(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Ask again what a server answers that lacks the script, or leads another life."""
        answers = await self._asked(calls)
        again = [i for i, answer in enumerate(answers) if _is_unsettled(answer)]
        if again:
            await self._learn(await self._connected())
            for i in again:
                if answers[i] == _ANOTHER_LIFE:
                    calls[i].standing = "sure"
            for i, answer in zip(again, await self._asked([calls[i] for i in again]), strict=True):
                answers[i] = answer
        if any(isinstance(answer, ResponseError) for answer in answers):
            await self.close()  # it may be a replica by now, or be loading
        return answers

    async def _asked(self, calls: Sequence[ScriptCall]) -> list[Any]:
        connection = await self._connected()
        life, head = self._life, (b"EVALSHA", self._sha, _KEYS)
        return await _exchange(
            connection,
            [(*head, *c.keys, life, c.standing, uuid4().hex, c.expiring, *c.steps) for c in calls],
        )

    async def _connected(self) -> AbstractConnection:
        if self._connection is None:
            pool: Any = self._pool  # its methods have no annotations
            connection: AbstractConnection = pool.make_connection()
            connect: Callable[[], Awaitable[None]] = connection.connect
            await connect()
            self._connection = connection
            await self._learn(connection)
        return self._connection

    async def _learn(self, connection: AbstractConnection) -> None:
        """Learn the server's life, and have it load the script."""
        told, loaded = await _exchange(connection, [(b"INFO",), (b"SCRIPT", b"LOAD", self._script)])
        for answer in (told, loaded):
            if isinstance(answer, ResponseError):
                raise answer
        facts = _facts(told)
        _refuse_eviction(facts)
        try:
            self._life = f"{facts['run_id']}.{facts['master_replid']}.{self._mark}"
        except KeyError:
            raise SketchUnavailable("The sketch's Redis does not tell its run id.") from None


def connect(url: str, timeout_s: float) -> Redis:
    """Return a client whose calls are not repeated by itself."""
    return Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )


async def _exchange(
    connection: AbstractConnection, commands: Sequence[tuple[Any, ...]]
) -> list[Any]:
    packed = b"".join(map(hiredis.pack_command, commands))
    if not connection.is_connected:  # sending would connect anew, to a server of another life
        raise NotConnected("The connection was closed.")
    await connection.send_packed_command(packed, check_health=False)
    return [await _answer(connection) for _ in commands]


async def _answer(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


def _is_unsettled(answer: Any) -> bool:
    return isinstance(answer, NoScriptError) or (isinstance(answer, int) and answer < 0)


def _facts(info: bytes) -> Mapping[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _refuse_eviction(facts: Mapping[str, str]) -> None:
    bounded = facts.get("maxmemory", "0") != "0"
    if bounded and facts.get("maxmemory_policy", "").startswith("allkeys"):
        raise SketchUnavailable("The sketch's Redis evicts keys: choose the policy noeviction.")
