"""One connection to the sketch's Redis, and the life of the server that is behind it.

A server that was restarted, or another one that took over, may have forgotten what the sketch
knew. Every call therefore tells the life of the server that it is meant for, and the script
compares it with the life that the partition was left by. A life is learned anew with every
connection, and no connection outlives the server it leads to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha1
from os import urandom
from typing import Any, Final

import hiredis
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from sketch.protocol.port import SketchUnavailable
from sketch.redis.connection import Tell, Wire

__all__ = ["Channel", "ScriptCall", "connect", "settled", "words"]

_ANOTHER_LIFE: Final = -1
_KEYS: Final = 13


@dataclass(slots=True)
class ScriptCall:
    """Steps on one partition, taken at once.

    Attributes:
        keys: Names of the partition's keys, as `words`.
        expiring: How many keys may expire in passing.
        steps: Names and arguments of the steps.
        standing: `sure`: the life told is the server's, whatever the partition says; `fresh`: a
            partition that is not there yet has never been.
    """

    keys: bytes
    expiring: int
    steps: list[Any] = field(default_factory=list)
    standing: str = ""


class Channel:
    """Sends calls of the sketch's script, all of one round trip in one write.

    Args:
        redis: The client whose settings the connection is made with.
        script: The script.
        mark: Becomes part of every life: partitions of another mark are begun anew.
        timeout_s: Longest wait for an answer.
    """

    def __init__(self, redis: Redis, script: str, mark: str, timeout_s: float) -> None:
        self._pool = redis.connection_pool
        self._script = script.encode()
        sha = sha1(self._script, usedforsecurity=False).hexdigest()
        self._head = words("EVALSHA", sha, _KEYS)
        self._mark = mark
        self._timeout_s = timeout_s
        self._wire: Wire | None = None
        self._life = ""
        self._turn = asyncio.Lock()

    def post(self, calls: Sequence[ScriptCall], tell: Tell) -> bool:
        """Send calls at once, if a connection stands idle; False: there is none.

        What is not `settled`, and what fails, is to be asked again with `ask`.
        """
        wire = self._wire
        if wire is None or not wire.idle or self._turn.locked():
            return False
        wire.post(self._packed(calls), len(calls), tell)
        return True

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
        return await (await self._connected()).ask(hiredis.pack_command((b"TIME",)), 1)

    def close(self) -> None:
        """Close the connection."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    async def _twice(self, exchange: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """Try a second time if an idle connection has died; every step may be taken twice."""
        async with self._turn:
            reused = self._wire is not None
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
            self.close()
            raise SketchUnavailable("The sketch's Redis does not answer.") from error
        except BaseException:
            self.close()  # answers still to come would be taken for others
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
        if not settled(answers):
            self.close()  # it may be a replica by now, or be loading
        return answers

    async def _asked(self, calls: Sequence[ScriptCall]) -> list[Any]:
        wire = await self._connected()
        return await wire.ask(self._packed(calls), len(calls))

    def _packed(self, calls: Sequence[ScriptCall]) -> bytes:
        return b"".join(map(self._pack, calls))

    def _pack(self, call: ScriptCall) -> bytes:
        own = (self._life, call.standing, urandom(16).hex(), call.expiring, *call.steps)
        return b"*%d\r\n%b%b%b" % (3 + _KEYS + len(own), self._head, call.keys, words(*own))

    async def _connected(self) -> Wire:
        if self._wire is None or self._wire.lost:
            self.close()
            pool: Any = self._pool  # its methods have no annotations
            connection: AbstractConnection = pool.make_connection()
            connect: Callable[[], Awaitable[None]] = connection.connect
            try:
                await connect()
            except BaseException:
                await connection.disconnect(nowait=True)  # the driver lets go of none by itself
                raise
            self._wire = Wire(connection, self._timeout_s)
            await self._learn(self._wire)
        # What was posted before the turn was taken may still be under way; nothing is posted now.
        await self._wire.quiet()
        return self._wire

    async def _learn(self, wire: Wire) -> None:
        """Learn the server's life, and have it load the script."""
        asked: list[tuple[Any, ...]] = [(b"INFO",), (b"SCRIPT", b"LOAD", self._script)]
        packed = b"".join([hiredis.pack_command(words) for words in asked])
        told, loaded = await wire.ask(packed, len(asked))
        for answer in (told, loaded):
            if isinstance(answer, ResponseError):
                raise answer
        facts = _facts(told)
        _refuse_eviction(facts)
        try:
            self._life = f"{facts['run_id']}.{facts['master_replid']}.{self._mark}"
        except KeyError:
            raise SketchUnavailable("The sketch's Redis does not tell its run id.") from None


def words(*texts: Any) -> bytes:
    """Pack some words of a command: those that are always the same are packed once."""
    packed: bytes = hiredis.pack_command(texts)
    return packed[packed.index(b"\n") + 1 :]


def settled(answers: Sequence[Any]) -> bool:
    """Whether the server took every call: what one is answered is a list, and nothing else is."""
    return all(isinstance(answer, list) for answer in answers)


def connect(url: str, timeout_s: float) -> Redis:
    """Return a client whose calls are not repeated by itself."""
    return Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )


def _is_unsettled(answer: Any) -> bool:
    return isinstance(answer, NoScriptError) or (isinstance(answer, int) and answer < 0)


def _facts(info: bytes) -> Mapping[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _refuse_eviction(facts: Mapping[str, str]) -> None:
    bounded = facts.get("maxmemory", "0") != "0"
    if bounded and facts.get("maxmemory_policy", "").startswith("allkeys"):
        raise SketchUnavailable("The sketch's Redis evicts keys: choose the policy noeviction.")
