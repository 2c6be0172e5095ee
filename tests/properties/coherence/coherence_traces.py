"""What clients see of a run of the model, as a trace for `check-trace`."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import orjson

from tests.properties.coherence.coherence_model import initial_state, moves
from tests.properties.coherence.coherence_states import IDLE, LANDED, UNSENT, Move, World

__all__ = ["TICK_US", "lines_of", "walk"]

TICK_US = 1_000
"""A tick; moves within one are a microsecond apart."""


def walk(world: World, random: Random, most: int) -> list[Move]:
    """Go any way, for so many moves at most."""
    state, path = initial_state(world), list[Move]()
    while len(path) < most and (possible := list(moves(world, state))):
        path.append(random.choice(possible))
        state = path[-1].state
    return path


def lines_of(path: Iterable[Move]) -> list[bytes]:
    """Print the reads and writes of a run; writes first, and reads in the order of their ends."""
    writes: dict[tuple[int, int], dict[str, Any]] = {}
    started: dict[int, int] = {}
    reads: list[dict[str, Any]] = []
    tick = now = 0
    for move in path:
        tick, now = (tick + 1, (tick + 1) * TICK_US) if move.what == "tick" else (tick, now + 1)
        _note_writes(writes, move, now)
        if move.read:
            reader, version = move.read
            reads.append(_operation("read", version, started.pop(reader, now), now))
        for number, each in enumerate(move.state.readers):
            if each.request:
                started.setdefault(number, now)
            else:
                started.pop(number, None)
    return [orjson.dumps(each) for each in (*writes.values(), *reads)]


def _note_writes(writes: dict[tuple[int, int], dict[str, Any]], move: Move, now: int) -> None:
    for number, writer in enumerate(move.state.writers):
        if writer.at == IDLE and writer.op == UNSENT:
            continue
        write = writes.setdefault((number, writer.left), _operation("write", None, now, None))
        if writer.op == LANDED:
            write["version"] = writer.version
        if move.acknowledged == number:
            write["end_us"] = now


def _operation(op: str, version: int | None, start: int, end: int | None) -> dict[str, Any]:
    return {"op": op, "key": "k", "version": version, "start_us": start, "end_us": end}
