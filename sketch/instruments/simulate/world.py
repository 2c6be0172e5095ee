"""The simulated world: the caches between clients and origin, and their distances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sketch.filter.shape import FilterShape
from sketch.instruments.simulate.latency import Latency, parse
from sketch.instruments.simulate.workload import YcsbWorkload

__all__ = ["CACHES", "Layer", "World", "layers_of"]


@dataclass(frozen=True, slots=True)
class Layer:
    """A shared cache on the way to the origin; copies only expire unless it can be purged."""

    name: str
    one_way: Latency
    purged: bool = False


CACHES: Final[dict[str, Layer]] = {
    "proxy": Layer("proxy", parse("constant(1)")),
    "cdn": Layer("cdn", parse("constant(2)"), purged=True),
}
"""Shared caches, the nearest to clients first; the time to the CDN is the paper's."""


def layers_of(names: str) -> tuple[bool, tuple[Layer, ...]]:
    """Read a list of caches, separated by commas: client, proxy, cdn.

    Returns:
        Whether clients have caches, and the shared caches.

    Raises:
        ValueError: A cache is unknown.
    """
    requested = {name.strip() for name in names.split(",") if name.strip()}
    if unknown := requested - {"client", *CACHES}:
        raise ValueError(f"there is no cache {', '.join(sorted(unknown))}")
    return "client" in requested, tuple(
        layer for name, layer in CACHES.items() if name in requested
    )


@dataclass(frozen=True, slots=True)
class World:
    """The inputs of a simulation, except the estimator.

    Attributes:
        workload: The clients' operations.
        client_caches: Whether each client has a cache.
        layers: Shared caches, the one next to clients first.
        origin_one_way: From the last shared cache to the origin.
        store: A read or write of the store.
        purge: From the end of a write until the caches are purged.
        bound_s: Δ: no client uses an older filter.
        shape: Shape of the filter.
        margin_s: M: how long the sketch considers a copy fresh after its end.
        max_ttl_s: The longest TTL of a copy, whatever the estimator.
        seed: Seed of the random numbers.
    """

    workload: YcsbWorkload = field(default=YcsbWorkload())
    client_caches: bool = True
    layers: tuple[Layer, ...] = (CACHES["cdn"],)
    origin_one_way: Latency = field(default=parse("constant(86.54)"))
    store: Latency = field(default=parse("constant(1)"))
    purge: Latency = field(default=parse("normal(80, 10)"))
    bound_s: float = 1.0
    shape: FilterShape = field(default=FilterShape())
    margin_s: float = 0.0
    max_ttl_s: float = 600.0
    seed: int = 1
