"""The store's Lua scripts, each assembled from its modules."""

from __future__ import annotations

from typing import Final

from redis_connection.scripts import Script, lua_module, lua_text

__all__ = [
    "ALL",
    "COUNT",
    "DROP",
    "ERASE",
    "FENCE",
    "FILL",
    "GROUPS",
    "INTENT",
    "PAGE",
    "READ",
    "RESERVE",
    "UPDATE",
    "WRITE",
]


def _script(name: str, *modules: str) -> Script:
    """Assemble a script; `prefix` in it is the key prefix of the class.

    Each module comes after the modules that it uses.
    """
    texts = (lua_module(module, lua_text(__name__, module)) for module in modules)
    return Script("\n".join(("local prefix = KEYS[1]", *texts, lua_text(__name__, name))))


READ: Final = _script("read", "records")
PAGE: Final = _script("page", "records", "sortable", "ranges")
COUNT: Final = _script("count", "sortable", "ranges")
GROUPS: Final = _script("groups", "sortable", "ranges")
FILL: Final = _script("fill", "records", "sortable", "multi")
DROP: Final = _script("drop", "records")
ERASE: Final = _script("erase", "records")
WRITE: Final = _script(
    *("write", "int64", "records", "sortable", "multi"),
    *("operators", "lifecycle", "memory", "claims"),
)
UPDATE: Final = _script("update", "int64", "records", "sortable", "multi")
FENCE: Final = _script("fence")
INTENT: Final = _script("intent", "claims")
RESERVE: Final = _script("reserve", "claims")
ALL: Final = (
    *(READ, PAGE, COUNT, GROUPS, FILL, DROP, ERASE),
    *(WRITE, UPDATE, FENCE, INTENT, RESERVE),
)
