"""What a server says of itself: product, version, and how much a crash may cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from mediator.stores.port import ServerFacts, SystemConfig

__all__ = ["is_stand_in", "observe"]

_STAND_IN: Final = "mongo-java-server"
_STAND_IN_LOSS_S: Final = 1.0
_JOURNAL_MS: Final = 100
"""MongoDB writes its journal every 100 ms unless told otherwise (storage.journal)."""

Client = AsyncMongoClient[dict[str, Any]]


async def observe(client: Client, config: SystemConfig) -> ServerFacts:
    """Ask a server for its version and configuration."""
    build = await client.admin.command("buildInfo")
    hello = await client.admin.command("hello")
    options = await _asked(client, "getCmdLineOpts")
    lost: float | None
    details = {"storage": ",".join(build.get("storageEngines", ()))}
    if is_stand_in(build):
        name, lost = _STAND_IN, _stand_in_loss(options)
    else:
        concern = await _write_concern(client, config)
        details["write_concern"] = str(concern.get("w", 1))
        name, lost = "MongoDB", _loss(options, hello, concern)
    hosts = hello.get("hosts", ())
    return ServerFacts(name, str(build["version"]), lost, max(len(hosts) - 1, 0), details)


def is_stand_in(build: Mapping[str, Any]) -> bool:
    """MongoDB names the commit it was built from; mongo-java-server has none to name."""
    return build.get("implementation") == _STAND_IN or "gitVersion" not in build


def _stand_in_loss(options: Mapping[str, Any]) -> float:
    """Our launcher is given, as its last argument, how often it commits (milliseconds).

    0: before each answer. Commits at a distance take time themselves, on a slow disk most of it.
    """
    every_ms = str([*options.get("argv", ()), ""][-1])
    if not every_ms.isdigit():
        return _STAND_IN_LOSS_S
    return max(_STAND_IN_LOSS_S, int(every_ms) / 1000) if int(every_ms) else 0.0


def _loss(
    options: Mapping[str, Any], hello: Mapping[str, Any], concern: Mapping[str, Any]
) -> float | None:
    storage = options.get("parsed", {}).get("storage", {})
    if storage.get("engine") == "inMemory":
        return None
    # A majority journals before it acknowledges (writeConcernMajorityJournalDefault).
    if concern.get("j") or (concern.get("w") == "majority" and "setName" in hello):
        return 0.0
    return float(storage.get("journal", {}).get("commitIntervalMs", _JOURNAL_MS)) / 1000


async def _write_concern(client: Client, config: SystemConfig) -> Mapping[str, Any]:
    if config.durability == "full":
        return {"w": "majority", "j": True}
    if config.durability == "second":
        return {"w": 1}
    answer = await _asked(client, "getDefaultRWConcern")
    concern: Mapping[str, Any] = answer.get("defaultWriteConcern", {})
    return concern


async def _asked(client: Client, command: str) -> Mapping[str, Any]:
    """Run a command that a server may not know, or not allow us."""
    try:
        answer: Mapping[str, Any] = await client.admin.command(command)
    except OperationFailure:
        return {}
    return answer
