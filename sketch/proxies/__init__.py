"""Shipped configurations of reverse proxies that cache Portolan's responses."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

__all__ = ["shipped"]


def shipped(proxy: Literal["varnish", "nginx"]) -> Path:
    return Path(__file__).parent / proxy
