"""Single writes that arrive in one turn of the event loop, sent as one call of a script.

The fixed cost of a script call, in the server and here, is shared by all that ask at the same time.
Each caller has a future of its own: one that goes away takes nothing from the others, and a write
that cannot be packed fails before it has joined them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from mediator.stores.port import StoreError, StoreUnavailable, Write, WriteResult
from mediator.stores.redis.line import Line
from mediator.stores.redis.packing import form_of
from mediator.stores.redis.plan import Plans
from mediator.stores.redis.runs import MOST_WRITES, Run

__all__ = ["Gathering"]

MOST_WORDS: Final = 10_000
"""Words of one gathered call at most; a write that has more travels alone."""


class _Gathered:
    """A run, and the callers that wait for its results in their order."""

    __slots__ = ("futures", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.futures: list[asyncio.Future[WriteResult]] = []

    def takes(self, row: list[Any]) -> bool:
        """Whether another write may join."""
        return len(self.futures) < MOST_WRITES and len(self.run.rows) + len(row) <= MOST_WORDS


class Gathering:
    """Gathers the single writes of a store.

    Args:
        plans: The compiled fragments.
        line: Where calls are sent.
        name: Name of the system, for messages.
    """

    def __init__(self, plans: Plans, line: Line, name: str) -> None:
        self._plans = plans
        self._line = line
        self._name = name
        self._waiting: list[_Gathered] = []
        self._latest: dict[tuple[int, int], _Gathered] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self, call: Write, token: str) -> asyncio.Future[WriteResult]:
        """Add a write to those of this turn; writes to one record stay in their order."""
        loop = asyncio.get_running_loop()
        plan = self._plans.of(call.fragment)
        form, partition = form_of(plan, call, has_token=bool(token)), plan.partition(call.id)
        row: list[Any] = []
        form.add(row, call, token)
        if not self._waiting:
            loop.call_soon(self._send)
        gathered = self._latest.get((id(plan), partition))
        if gathered is None or gathered.run.form is not form or not gathered.takes(row):
            gathered = self._latest[id(plan), partition] = _Gathered(Run(plan, partition, form))
            self._waiting.append(gathered)
        gathered.run.rows += row
        future: asyncio.Future[WriteResult] = loop.create_future()
        gathered.futures.append(future)
        return future

    def _send(self) -> None:
        turn = self._waiting
        self._waiting, self._latest = [], {}
        for gathered in turn:
            task = asyncio.get_running_loop().create_task(self._carry(gathered))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, gathered: _Gathered) -> None:
        try:
            (reply,) = await self._line.ask([gathered.run.command()], writes=True)
            results = gathered.run.results(reply)
        except StoreError as error:
            _fail(gathered, error)
        except BaseException:
            _fail(gathered, StoreUnavailable(f"{self._name}: the call was broken off"))
            raise
        else:
            for future, result in zip(gathered.futures, results, strict=True):
                if not future.done():
                    future.set_result(result)


def _fail(gathered: _Gathered, error: StoreError) -> None:
    for future in gathered.futures:
        if not future.done():
            future.set_exception(type(error)(*error.args))
