"""What a server tells of itself, and what it must not be like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mediator.stores.port import ServerFacts, StoreRefused

__all__ = ["DURABILITY", "facts_of", "refuse_unfit", "settings_of"]

DURABILITY = {"full": "always", "second": "everysec"}
"""The `appendfsync` that a durability asks for."""

_OLDEST = (6, 2)
_SECONDS = {"always": 0.0, "everysec": 1.0}


def settings_of(info: bytes, config: list[bytes] | None) -> dict[str, str]:
    """Return the lines of INFO and the pairs of CONFIG GET (None: forbidden) by name."""
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    settings = {name: value for name, colon, value in lines if colon}
    if config:
        texts = [text.decode(errors="replace") for text in config]
        settings.update(zip(texts[::2], texts[1::2], strict=True))
    return settings


def facts_of(settings: Mapping[str, str]) -> ServerFacts:
    """Conclude what the settings mean."""
    looked_at = ("appendonly", "appendfsync", "aof_enabled", "maxmemory", "maxmemory_policy")
    replicas = settings.get("connected_slaves")
    return ServerFacts(
        server=_product(settings),
        version=_version(settings),
        durability_s=_durability_s(settings),
        replicas=None if replicas is None else int(replicas),
        details={name: settings[name] for name in looked_at if name in settings},
    )


def refuse_unfit(settings: Mapping[str, str]) -> None:
    """Raise `StoreRefused` for a server that is too old or throws records away."""
    version = settings.get("redis_version", "0")
    if _numbers(version) < _OLDEST:
        raise StoreRefused(f"{_product(settings)} {version} is older than 6.2")
    policy = settings.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory", "0") != "0":
        raise StoreRefused(f"maxmemory-policy {policy} throws records away; set it to noeviction")


def _product(settings: Mapping[str, Any]) -> str:
    return str(settings.get("server_name", "redis"))


def _version(settings: Mapping[str, str]) -> str:
    product = _product(settings)
    return settings.get(f"{product}_version") or settings.get("redis_version", "unknown")


def _durability_s(settings: Mapping[str, str]) -> float | None:
    kept = settings.get("appendonly") == "yes" or settings.get("aof_enabled") == "1"
    return _SECONDS.get(settings.get("appendfsync", "")) if kept else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
