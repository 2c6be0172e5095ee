"""The Lua of the sketch in Redis: one script, which takes steps on one partition."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from sketch.filter.bloom import FilterShape
from sketch.protocol.port import SketchLimits
from sketch.protocol.times import again_step_us, lifetime_us, microseconds

__all__ = ["source_of"]

_ALWAYS: Final = ("part", "quick", "filter")
_MODULES: Final = (
    "lives",
    "snapshots",
    "purges",
    "queries",
    "writes",
    "reads",
    "results",
    "state",
)
"""Each after those it needs."""

_ASKED_S: Final = 60.0
"""For how long after somebody asked for a result no mark lingers."""

_MODULE: Final = """local {name}
do
  local made
  {name} = function()
    if not made then
      made = (function()
{text}
      end)()
    end
    return made
  end
end"""
"""A module is made when a step needs it: making the functions of all takes as long as a step."""


def source_of(limits: SketchLimits, shape: FilterShape) -> str:
    """Return the text of the script for these limits and filters of this shape."""
    modules = (_MODULE.format(name=name, text=_text(name)) for name in _MODULES)
    return "\n".join((_constants(limits, shape), *map(_text, _ALWAYS), *modules, _text("run")))


def _text(name: str) -> str:
    return (files(__name__) / f"{name}.lua").read_text("utf-8")


def _constants(limits: SketchLimits, shape: FilterShape) -> str:
    again = limits.purge_again_s
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
        "ASKED_US": microseconds(_ASKED_S),
        "AGAIN_US": "false" if again is None else microseconds(again),
        "AGAIN_STEP_US": again_step_us(limits),
    }
    lines = [f"local {name} = {number}" for name, number in numbers.items()]
    return "\n".join((*lines, f"local PLACES = '>{'I4' * shape.hashes}'"))
