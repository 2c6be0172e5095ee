"""Purging as the settings say: which caches, and how they are asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

import httpx

from app.settings.main import PurgeTarget
from sketch.purging import Purger, TagApi, TagPurger, UrlPurger, cloudflare, fastly, varnish
from sketch.purging.port import PurgeEvent, PurgeQueueUnanswered, PurgerChanged, PurgesFailed

__all__ = ["Connect", "log_purging", "make_purgers"]

_log = logging.getLogger("portolan.purging")


Connect: TypeAlias = Callable[[], httpx.AsyncBaseTransport | None]
"""Makes what sends the requests to one cache; None: what the HTTP client has of its own."""


def make_purgers(targets: Sequence[PurgeTarget], connect: Connect = lambda: None) -> list[Purger]:
    """Make a purger of each cache; raises `ValueError` for an address or token that cannot be."""
    return [_purger(target, connect()) for target in targets]


def _purger(target: PurgeTarget, transport: httpx.AsyncBaseTransport | None) -> Purger:
    token = target.token.get_secret_value()
    match target.kind:
        case "varnish":
            return TagPurger(varnish(target.name, target.at, token), transport)
        case "fastly":
            return TagPurger(fastly(target.name, target.at, token), transport)
        case "cloudflare":
            return TagPurger(cloudflare(target.name, target.at, token), transport)
        case "tags":
            assert target.request is not None  # PurgeTarget demands it
            request = target.request.model_dump()
            return TagPurger(TagApi(target.name, target.at, token, **request), transport)
        case "nginx":
            return UrlPurger(target.name, target.at, token, transport=transport)


def log_purging(event: PurgeEvent) -> None:
    """Write what operators want to read; what goes well is left to the metrics."""
    match event:
        case PurgerChanged(down=True) | PurgeQueueUnanswered():
            _log.warning("%s", event)
        case PurgerChanged():
            _log.info("%s", event)
        case PurgesFailed():
            _log.debug("%s", event)
        case _:
            return
