"""Lua scripts: called by their SHA-1, and put together from modules that are made when needed."""

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
        """The name by which the server calls it; Redis requires SHA-1."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    @cached_property
    def load(self) -> bytes:
        """The command that makes the server know it."""
        return command("SCRIPT", "LOAD", self.text)

    def call(self, keys: Iterable[str], *arguments: Any) -> bytes:
        named = tuple(keys)
        return command("EVALSHA", self.sha, len(named), *named, *arguments)


def lua_text(package: str, name: str) -> str:
    """Return the text of a Lua file beside a package's modules."""
    return (files(package) / f"{name}.lua").read_text("utf-8")


def lua_module(name: str, text: str) -> str:
    """Return a module as a function that makes it when it is first called.

    Redis has no modules, and making the functions of one takes longer than many a call of a script.
    """
    return _MODULE.format(name=name, text=text)
