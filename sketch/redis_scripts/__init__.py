"""The Lua of the sketch in Redis: one script, which takes steps on one part."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from sketch.bloom import FilterShape
from sketch.lifetimes import again_step_us, lifetime_us, microseconds
from sketch.port import SketchLimits

__all__ = ["source_of"]

_PIECES: Final = (
    "part",
    "filter",
    "purges",
    "queries",
    "writes",
    "reads",
    "results",
    "state",
    "run",
)


def source_of(limits: SketchLimits, shape: FilterShape) -> str:
    """Return the text of the script for these limits and filters of this shape."""
    folder = files(__name__)
    pieces = ((folder / f"{name}.lua").read_text("utf-8") for name in _PIECES)
    return "\n".join((_constants(limits, shape), *pieces))


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
        "AGAIN_US": "false" if again is None else microseconds(again),
        "AGAIN_STEP_US": again_step_us(limits),
    }
    lines = [f"local {name} = {number}" for name, number in numbers.items()]
    return "\n".join((*lines, f"local PLACES = '>{'I4' * shape.hashes}'"))
