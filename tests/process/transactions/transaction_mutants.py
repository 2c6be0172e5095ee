"""Transactions with a step left out, to see that a checker of histories answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mediator.stores.port import Write
from mediator.transactions import coordinator
from mediator.transactions.validation import validate
from tests.process.service import Service

__all__ = ["MUTANTS", "Echo"]


class Echo:
    """Sends every write under an intent once more, later: as a replica whose lease has expired.

    Args:
        mediator: Whose systems are written to.
        patched: Takes it out of their way again.
        fenced: Whether the second one needs the intent, as it does; a mutant makes its own way.
    """

    def __init__(
        self, mediator: Service, patched: pytest.MonkeyPatch, *, fenced: bool = True
    ) -> None:
        self._fenced = fenced
        self._late: list[asyncio.Task[None]] = []
        for guarded in mediator.mediator.systems:
            store: Any = guarded.store
            patched.setattr(store, "write", self._twice(store, store.write))

    async def end(self) -> None:
        """Wait until the last of them has come."""
        await asyncio.gather(*self._late)

    def _twice(self, store: Any, send: Any) -> Any:
        async def write(calls: Sequence[Write], *token: str) -> Any:
            results = await send(calls, *token)
            late = [call for call in calls if call.intent]
            self._late.append(asyncio.create_task(self._again(store, send, late)))
            return results

        return write

    async def _again(self, store: Any, send: Any, late: Sequence[Write]) -> None:
        for call in late:
            await asyncio.sleep(0.01)
            if self._fenced:
                await send([call])
            else:
                await store.lock([(call.fragment, call.id)], call.intent)
                await send([replace(call, remember=None)])


async def _nothing(*_: Any) -> list[Any]:
    return []


async def _ignoring_intents(*args: Any) -> list[Any]:
    await validate(*args)
    return []


def _without_validation(_: Service, patched: pytest.MonkeyPatch) -> None:
    patched.setattr(coordinator, "validate", _nothing)


def _without_foreign_intents(_: Service, patched: pytest.MonkeyPatch) -> None:
    patched.setattr(coordinator, "validate", _ignoring_intents)


def _without_fences(mediator: Service, patched: pytest.MonkeyPatch) -> None:
    Echo(mediator, patched, fenced=False)


def _without_intents(mediator: Service, patched: pytest.MonkeyPatch) -> None:
    for guarded in mediator.mediator.systems:
        patched.setattr(guarded.store, "write", _unchecked(guarded.store))


def _unchecked(store: Any) -> Any:
    send = store.write

    async def write(calls: Sequence[Write], *token: str) -> Any:
        states = await store.record_states([(call.fragment, call.id) for call in calls])
        taken = [
            call if call.intent else replace(call, intent=state.intent)
            for call, state in zip(calls, states, strict=True)
        ]
        results = await send(taken, *token)
        for call, other in zip(calls, taken, strict=True):
            if other.intent != call.intent:
                await store.lock([(call.fragment, call.id)], other.intent)
        return results

    return write


MUTANTS: Mapping[str, Callable[[Service, pytest.MonkeyPatch], None]] = {
    "the read set is not looked at": _without_validation,
    "intents on what is read are ignored": _without_foreign_intents,
    "plain writes take no notice of intents": _without_intents,
    "what is applied late does not need the intent": _without_fences,
}
