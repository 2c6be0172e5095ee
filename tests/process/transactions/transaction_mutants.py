"""Transactions without one of their steps, to test the checker of histories."""

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
    """Repeats every write under an intent later, like a replica whose lease has expired.

    Args:
        mediator: The mediator whose systems are written to.
        patched: Reverts the patches.
        fenced: Whether the second write needs the intent, as in Portolan; a mutant sets it anew.
    """

    def __init__(
        self, mediator: Service, patched: pytest.MonkeyPatch, *, fenced: bool = True
    ) -> None:
        self._fenced = fenced
        self._late: list[asyncio.Task[None]] = []
        for guarded in mediator.mediator.systems:
            store: Any = guarded.store
            patched.setattr(store, "write", self._write_twice(store, store.write))

    async def end(self) -> None:
        """Wait until the last of the repeated writes has arrived."""
        await asyncio.gather(*self._late)

    def _write_twice(self, store: Any, send: Any) -> Any:
        async def write(calls: Sequence[Write], *token: str) -> Any:
            results = await send(calls, *token)
            late = [call for call in calls if call.intent]
            self._late.append(asyncio.create_task(self._repeat(store, send, late)))
            return results

        return write

    async def _repeat(self, store: Any, send: Any, late: Sequence[Write]) -> None:
        for call in late:
            await asyncio.sleep(0.01)
            if self._fenced:
                await send([call])
            else:
                await store.lock([(call.fragment, call.id)], call.intent)
                await send([replace(call, remember=None)])


async def _return_nothing(*_: Any) -> list[Any]:
    return []


async def _validate_without_intents(*args: Any) -> list[Any]:
    await validate(*args)
    return []


def _without_validation(_: Service, patched: pytest.MonkeyPatch) -> None:
    patched.setattr(coordinator, "validate", _return_nothing)


def _without_foreign_intents(_: Service, patched: pytest.MonkeyPatch) -> None:
    patched.setattr(coordinator, "validate", _validate_without_intents)


def _without_fences(mediator: Service, patched: pytest.MonkeyPatch) -> None:
    Echo(mediator, patched, fenced=False)


def _without_intents(mediator: Service, patched: pytest.MonkeyPatch) -> None:
    for guarded in mediator.mediator.systems:
        patched.setattr(guarded.store, "write", _write_unchecked(guarded.store))


def _write_unchecked(store: Any) -> Any:
    send = store.write

    async def write(calls: Sequence[Write], *token: str) -> Any:
        states = await store.record_states([(call.fragment, call.id) for call in calls])
        adopted = [
            call if call.intent else replace(call, intent=state.intent)
            for call, state in zip(calls, states, strict=True)
        ]
        results = await send(adopted, *token)
        for call, adopted_call in zip(calls, adopted, strict=True):
            if adopted_call.intent != call.intent:
                await store.lock([(call.fragment, call.id)], adopted_call.intent)
        return results

    return write


MUTANTS: Mapping[str, Callable[[Service, pytest.MonkeyPatch], None]] = {
    "the read set is not validated": _without_validation,
    "intents on the read set are ignored": _without_foreign_intents,
    "single writes ignore intents": _without_intents,
    "late steps do not need the intent": _without_fences,
}
