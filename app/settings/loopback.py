"""Whether an address is reached from this machine only."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

__all__ = ["is_loopback"]

_LOOPBACK_NAME: Final = "localhost"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, seen from itself alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == _LOOPBACK_NAME
