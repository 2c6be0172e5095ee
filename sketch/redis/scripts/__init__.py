"""The Lua of the sketch in Redis: one script, which takes steps on one partition."""

from __future__ import annotations

from typing import Final

from redis_connection.scripts import Script, lua_module, lua_text
from sketch.filter.shape import FilterShape
from sketch.protocol.bounds import lifetime_us, microseconds, repeat_step_us
from sketch.protocol.port import SketchLimits

__all__ = ["script_of"]

_FIRST: Final = ("head", "fast", "filter")
_MODULES: Final = ("layout", "snapshots", "purges", "writes", "reads", "queries", "state")
"""In the order of their dependencies."""

_REQUESTED_S: Final = 60.0
"""How long after a request for a result no write lease is cached."""


def script_of(limits: SketchLimits, shape: FilterShape) -> Script:
    modules = (lua_module(name, lua_text(__name__, name)) for name in _MODULES)
    first = (lua_text(__name__, name) for name in _FIRST)
    dispatch = lua_text(__name__, "dispatch")
    return Script("\n".join((_constants(limits, shape), *first, *modules, dispatch)))


def _constants(limits: SketchLimits, shape: FilterShape) -> str:
    repeat_s = limits.purge_repeat_s
    numbers = {
        "FILTER_BITS": shape.bits,
        "HASHES": shape.hashes,
        "KEYS_MOST": limits.keys,
        "QUERIES_MOST": limits.queries,
        "LAYERS": limits.layers,
        "MARGIN_US": microseconds(limits.margin_s),
        "LEASE_US": microseconds(limits.lease_s),
        "LIFETIME_US": lifetime_us(limits),
        "PURGE_LEASE_US": microseconds(limits.purge_lease_s),
        "REQUESTED_US": microseconds(_REQUESTED_S),
        "AGAIN_US": "false" if repeat_s is None else microseconds(repeat_s),
        "AGAIN_STEP_US": repeat_step_us(limits),
    }
    lines = [f"local {name} = {number}" for name, number in numbers.items()]
    return "\n".join((*lines, f"local PLACES = '>{'I4' * shape.hashes}'"))
