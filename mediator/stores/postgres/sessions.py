"""Opening a session with the settings that our statements count on."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from mediator.stores.port import SystemConfig

__all__ = ["connect", "connect_to_search"]

_STATEMENTS: Final = 512
_SEARCHES: Final = 64
"""Users think of searches: there is no end to their shapes, nor much use in keeping many."""

_DURABILITY: Final = {"full": "on", "second": "off"}


async def connect(config: SystemConfig) -> Any:
    """Open a connection; raises what asyncpg raises."""
    return await _connected(config, _STATEMENTS, _settings(config))


async def connect_to_search(config: SystemConfig) -> Any:
    """Open a connection that only reads, and whose statements are planned for what they find."""
    settings = _settings(config) | {
        "plan_cache_mode": "auto",
        "enable_seqscan": "on",
        "default_transaction_read_only": "on",
    }
    return await _connected(config, _SEARCHES, settings)


async def _connected(config: SystemConfig, statements: int, settings: dict[str, str]) -> Any:
    return await asyncpg.connect(
        config.url,
        # The caller's deadline bounds it; asyncpg's own default is a minute.
        timeout=config.deadline_s,
        statement_cache_size=statements,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
        server_settings=settings,
    )


def _settings(config: SystemConfig) -> dict[str, str]:
    settings = {
        "application_name": "portolan",
        # When we give up, the server shall give up too.
        "statement_timeout": f"{max(1, round(config.deadline_s * 1000))}",
        "idle_in_transaction_session_timeout": "60s",
        "timezone": "UTC",
        "jit": "off",
        # One plan for each statement. It is made when a table may still be empty, where a
        # sequential scan looks cheapest; all our statements but one are served by an index.
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
    }
    if config.durability is not None:
        settings["synchronous_commit"] = _DURABILITY[config.durability]
    return settings
