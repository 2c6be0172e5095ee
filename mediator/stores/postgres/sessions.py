"""Opening a session with the settings that our statements count on."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from mediator.stores.port import SystemConfig

__all__ = ["connect"]

_STATEMENTS: Final = 512
_DURABILITY: Final = {"full": "on", "second": "off"}


async def connect(config: SystemConfig) -> Any:
    """Open a connection; raises what asyncpg raises."""
    return await asyncpg.connect(
        config.url,
        # The caller's deadline bounds it; asyncpg's own default is a minute.
        timeout=config.deadline_s,
        statement_cache_size=_STATEMENTS,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
        server_settings=_settings(config),
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
