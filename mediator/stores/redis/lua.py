"""The Lua scripts, each put together from its parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from importlib.resources import files

__all__ = [
    "DROP",
    "FENCE",
    "FILL",
    "INTENT",
    "PAGE",
    "READ",
    "SOURCES",
    "UPDATE",
    "WRITE",
    "Script",
]


_MODULE = """local {name}
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
"""Redis has no modules: each becomes a function that makes it when it is first used, because making
its functions takes longer than many a call of the script does."""


@dataclass(frozen=True)
class Script:
    """A script and the modules it may use, each after those it needs.

    Attributes:
        name: Its own part.
        modules: Those it may use.
    """

    name: str
    modules: tuple[str, ...]

    @cached_property
    def source(self) -> str:
        """The text of the script; `prefix` is what the keys of its class begin with."""
        modules = (_MODULE.format(name=name, text=_text(name)) for name in self.modules)
        return "\n".join(("local prefix = KEYS[1]", *modules, _text(self.name)))

    @cached_property
    def sha(self) -> str:
        """The name the server knows it by; Redis asks for SHA-1."""
        return sha1(self.source.encode(), usedforsecurity=False).hexdigest()


def _text(name: str) -> str:
    return (files("mediator.stores.redis") / "scripts" / f"{name}.lua").read_text("utf-8")


READ = Script("read", ("records",))
PAGE = Script("page", ("records", "sortable"))
FILL = Script("fill", ("records", "sortable"))
DROP = Script("drop", ("records",))
WRITE = Script("write", ("int64", "records", "sortable", "operators", "lifecycle", "memory"))
UPDATE = Script("update", ("int64", "sortable"))
FENCE = Script("fence", ())
INTENT = Script("intent", ())
_ALL = (READ, PAGE, FILL, DROP, WRITE, UPDATE, FENCE, INTENT)
SOURCES = tuple(script.source for script in _ALL)
