"""A client of the sketch's script, which knows the run of the server behind its connection.

A restarted server, or a replica that took over, may have lost the sketch. So every call names the
run that it is meant for, and the script compares it with the run that last changed the partition.
The run id is read with every new connection, and no connection outlives its server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import urandom
from time import monotonic
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from redis_connection.commands import arguments, command
from redis_connection.connection import Connection, OnReplies, open_connection
from redis_connection.scripts import Script
from sketch.protocol.port import SketchUnavailable

__all__ = ["ScriptCall", "ScriptClient", "accepted", "connect"]

_KEYS: Final = 13


@dataclass(slots=True)
class ScriptCall:
    """Steps on one partition, executed in one call.

    Attributes:
        claim: `confirmed`: the named run is the server's, whatever the partition says; `new`: a
            missing partition has never existed.
    """

    keys: bytes
    expiring: int
    steps: list[Any] = field(default_factory=list)
    claim: str = ""


class ScriptClient:
    """Sends calls of the sketch's script, all of one round trip in one write.

    Args:
        fingerprint: Part of every run id: partitions of another fingerprint are invalidated.
    """

    def __init__(self, redis: Redis, script: Script, fingerprint: str, timeout_s: float) -> None:
        self._pool = redis.connection_pool
        self._script = script
        self._head = arguments("EVALSHA", script.sha, _KEYS)
        self._fingerprint = fingerprint
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._run_id = ""
        self._lock = asyncio.Lock()

    def post(self, calls: Sequence[ScriptCall], on_replies: OnReplies) -> bool:
        """Send calls at once if the connection is idle; False: it is not.

        Calls that fail, or are not `accepted`, must be repeated with `execute`.
        """
        connection = self._connection
        if connection is None or not connection.idle or self._lock.locked():
            return False
        connection.send(self._encode_calls(calls), monotonic() + self._timeout_s, on_replies)
        return True

    async def execute(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Return the reply to each call, or the error that answered it.

        Raises:
            SketchUnavailable: The server did not answer.
        """
        return await self._retry_once(partial(self._call_or_repeat, calls))

    async def request(self, *texts: Any) -> Any:
        """Return the reply to a command other than a call of the script; it may be sent twice.

        Raises:
            SketchUnavailable: The server did not answer, or refused.
        """
        (reply,) = await self._retry_once(partial(self._exchange, [command(*texts)]))
        if isinstance(reply, Exception):
            raise SketchUnavailable("The sketch's Redis refused.") from reply
        return reply

    async def time_us(self) -> int:
        seconds, micros = await self.request("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _retry_once(self, exchange: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """Retry once if an idle connection has died; every step may be executed twice."""
        async with self._lock:
            reused = self._connection is not None
            try:
                return await self._attempt(exchange)
            except SketchUnavailable as error:
                # A new connection cannot have died idle, and a timeout has used up the caller's
                # time.
                if not reused or isinstance(error.__cause__, TimeoutError):
                    raise
            return await self._attempt(exchange)

    async def _attempt(self, exchange: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await exchange()
        except (RedisError, OSError) as error:
            self.close()
            raise SketchUnavailable("The sketch's Redis does not answer.") from error
        except BaseException:
            self.close()
            raise

    async def _call_or_repeat(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Repeat calls if the server lacks the script, or the partition is of another run."""
        replies = await self._call(calls)
        refused_calls = [i for i, reply in enumerate(replies) if _is_repeatable(reply)]
        if refused_calls:
            await self._read_run_id(await self._connect())
            for i in refused_calls:
                # The run id was just read: the partition can accept it as the server's.
                if isinstance(replies[i], int):
                    calls[i].claim = "confirmed"
            repeated = await self._call([calls[i] for i in refused_calls])
            for i, reply in zip(refused_calls, repeated, strict=True):
                replies[i] = reply
        if not accepted(replies):
            self.close()  # it may be a replica by now, or be loading
        return replies

    async def _call(self, calls: Sequence[ScriptCall]) -> list[Any]:
        await self._connect()  # before calls are encoded: they name the run
        return await self._exchange(self._encode_calls(calls))

    async def _exchange(self, commands: Sequence[bytes]) -> list[Any]:
        connection = await self._connect()
        return await connection.request(commands, monotonic() + self._timeout_s)

    def _encode_calls(self, calls: Sequence[ScriptCall]) -> list[bytes]:
        return [self._encode(call) for call in calls]

    def _encode(self, call: ScriptCall) -> bytes:
        parameters = (self._run_id, call.claim, urandom(16).hex(), call.expiring, *call.steps)
        return b"*%d\r\n%b%b%b" % (
            3 + _KEYS + len(parameters),
            self._head,
            call.keys,
            arguments(*parameters),
        )

    async def _connect(self) -> Connection:
        if self._connection is None or self._connection.lost:
            self.close()
            pool: Any = self._pool  # its methods have no annotations
            driver: AbstractConnection = pool.make_connection()
            self._connection = await open_connection(driver, _error_of_reply)
            await self._read_run_id(self._connection)
        return self._connection

    async def _read_run_id(self, connection: Connection) -> None:
        """Read the server's run id, and have it load the script."""
        commands = [command("INFO"), self._script.load]
        replies = await connection.request(commands, monotonic() + self._timeout_s)
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        server_info = _parse_info(replies[0])
        _refuse_eviction(server_info)
        try:
            self._run_id = (
                f"{server_info['run_id']}.{server_info['master_replid']}.{self._fingerprint}"
            )
        except KeyError:
            raise SketchUnavailable("The sketch's Redis does not name its run id.") from None


def accepted(replies: Sequence[Any]) -> bool:
    """Whether the server executed every call: only then the reply is a list."""
    return all(isinstance(reply, list) for reply in replies)


def connect(url: str, timeout_s: float) -> Redis:
    """Return a client that does not retry."""
    return Redis.from_url(
        url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
    )


def _error_of_reply(text: str) -> ResponseError:
    return NoScriptError(text) if text.startswith("NOSCRIPT") else ResponseError(text)


def _is_repeatable(reply: Any) -> bool:
    """Whether a call was refused for the script, or for the run; see ``head.lua``."""
    return isinstance(reply, NoScriptError | int)


def _parse_info(info: bytes) -> Mapping[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _refuse_eviction(server_info: Mapping[str, str]) -> None:
    bounded = server_info.get("maxmemory", "0") != "0"
    if bounded and server_info.get("maxmemory_policy", "").startswith("allkeys"):
        raise SketchUnavailable("The sketch's Redis evicts keys: choose the policy noeviction.")
