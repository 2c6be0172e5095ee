"""Helpers of the checks of write intents and reservations."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mediator.stores.conformance.expect import NotOffered, same
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Lockable

__all__ = ["INTENT", "OTHER", "expect_no_redo", "lockable", "redo_records"]

INTENT: Final = "intent-1"
OTHER: Final = "intent-2"


def lockable(scratch: Scratch) -> Lockable:
    if not isinstance(scratch.store, Lockable):
        raise NotOffered("the store takes no intents")
    return scratch.store


async def redo_records(store: Lockable, subject: ScratchClass, *ids: str) -> list[str]:
    keys = [(subject.fragment, id_) for id_ in ids]
    states = await store.record_states(keys, redo=True)
    states_without_redo = [replace(state, redo="") for state in states]
    same(
        await store.record_states(keys),
        states_without_redo,
        "the states without their redo records",
    )
    return [state.redo for state in states]


async def expect_no_redo(store: Lockable, subject: ScratchClass, *ids: str) -> None:
    """Require that records without intents have no redo record, nor after they are locked."""
    no_redo = [""] * len(ids)
    same(await redo_records(store, subject, *ids), no_redo, "redo records without an intent")
    keys = [(subject.fragment, id_) for id_ in ids]
    await store.lock(keys, INTENT)
    same(await redo_records(store, subject, *ids), no_redo, "redo records of intents without one")
    await store.unlock(keys, INTENT)
