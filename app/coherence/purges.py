"""Purging as the settings say: which caches, and how they are asked."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from app.settings import PurgeTarget
from sketch.purging import Purger, TagPurger, UrlPurger, cloudflare, fastly, varnish
from sketch.purging.events import PurgeEvent, PurgeQueueUnanswered, PurgerChanged, PurgesFailed

__all__ = ["log_purging", "make_purgers"]

_log = logging.getLogger("portolan.purging")


def make_purgers(targets: Sequence[PurgeTarget]) -> list[Purger]:
    """Make a purger of each cache; raises `ValueError` for an address or token that cannot be."""
    return [_purger(target) for target in targets]


def _purger(target: PurgeTarget) -> Purger:
    token = target.token.get_secret_value()
    match target.kind:
        case "varnish":
            return TagPurger(varnish(target.name, target.at, token))
        case "fastly":
            return TagPurger(fastly(target.name, target.at, token))
        case "cloudflare":
            return TagPurger(cloudflare(target.name, target.at, token))
        case "nginx":
            return UrlPurger(target.name, target.at, token)


def log_purging(told: PurgeEvent) -> None:
    """Write what operators want to read; what goes well is left to the metrics."""
    match told:
        case PurgerChanged(down=True) | PurgeQueueUnanswered():
            _log.warning("%s", told)
        case PurgerChanged():
            _log.info("%s", told)
        case PurgesFailed():
            _log.debug("%s", told)
        case _:
            return
