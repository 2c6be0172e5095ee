"""Configurations of reverse proxies that keep what Portolan answers, as they are shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

__all__ = ["shipped"]


def shipped(proxy: Literal["varnish", "nginx"]) -> Path:
    return Path(__file__).parent / proxy
