"""Lua scripts: called by SHA-1, and assembled from lazily created modules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final

from redis_connection.commands import command

__all__ = ["Script", "lua_module", "lua_text"]

_MODULE: Final = """local {name}
do
  local instance
  {name} = function()
    if not instance then
      instance = (function()
{text}
      end)()
    end
    return instance
  end
end"""


@dataclass(frozen=True)
class Script:
    text: str

    @cached_property
    def sha(self) -> str:
        """The SHA-1 by which Redis names the script."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    @cached_property
    def load(self) -> bytes:
        """The command that loads the script into the server."""
        return command("SCRIPT", "LOAD", self.text)

    def call(self, keys: Iterable[str], *arguments: Any) -> bytes:
        key_names = tuple(keys)
        return command("EVALSHA", self.sha, len(key_names), *key_names, *arguments)


def lua_text(package: str, name: str) -> str:
    """Return the text of a Lua file in a package."""
    return (files(package) / f"{name}.lua").read_text("utf-8")


def lua_module(name: str, text: str) -> str:
    """Return a module as a function that creates it at the first call.

    Redis has no modules, and creating the functions of one takes longer than many script calls.
    """
    return _MODULE.format(name=name, text=text)
