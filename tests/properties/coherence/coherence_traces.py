"""Operations that clients observe in a run of the model, as a trace for `check-trace`."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import orjson

from tests.properties.coherence.coherence_model import initial_state, moves
from tests.properties.coherence.coherence_states import IDLE, LANDED, UNSENT, Move, World

__all__ = ["TICK_US", "lines_of", "walk"]

TICK_US = 1_000
"""The length of a tick; moves within a tick are a microsecond apart."""


def walk(world: World, random: Random, max_moves: int) -> list[Move]:
    """Make at most `max_moves` random moves."""
    state, path = initial_state(world), list[Move]()
    while len(path) < max_moves and (next_moves := list(moves(world, state))):
        path.append(random.choice(next_moves))
        state = path[-1].state
    return path


def lines_of(path: Iterable[Move]) -> list[bytes]:
    """Return the writes of a run, then its reads in the order of their ends, as JSON lines."""
    writes: dict[tuple[int, int], dict[str, Any]] = {}
    started: dict[int, int] = {}
    reads: list[dict[str, Any]] = []
    tick = now = 0
    for move in path:
        tick, now = (tick + 1, (tick + 1) * TICK_US) if move.label == "tick" else (tick, now + 1)
        _record_writes(writes, move, now)
        if move.read:
            reader, version = move.read
            reads.append(_operation("read", version, started.pop(reader, now), now))
        for number, reader_state in enumerate(move.state.readers):
            if reader_state.request:
                started.setdefault(number, now)
            else:
                started.pop(number, None)
    return [orjson.dumps(operation) for operation in (*writes.values(), *reads)]


def _record_writes(writes: dict[tuple[int, int], dict[str, Any]], move: Move, now: int) -> None:
    for number, writer in enumerate(move.state.writers):
        if writer.at == IDLE and writer.op == UNSENT:
            continue
        write = writes.setdefault((number, writer.remaining), _operation("write", None, now, None))
        if writer.op == LANDED:
            write["version"] = writer.version
        if move.acknowledged == number:
            write["end_us"] = now


def _operation(op: str, version: int | None, start: int, end: int | None) -> dict[str, Any]:
    return {"op": op, "key": "k", "version": version, "start_us": start, "end_us": end}
