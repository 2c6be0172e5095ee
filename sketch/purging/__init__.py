"""Purging: caches are requested to forget what was written."""

from __future__ import annotations

from sketch.purging.lane import PurgingLimits
from sketch.purging.port import CachedKey, PurgeEvent, PurgeFailed, Purger
from sketch.purging.purgers import TagApi, TagPurger, UrlPurger, cloudflare, fastly, varnish
from sketch.purging.worker import Purging

__all__ = [
    "CachedKey",
    "PurgeEvent",
    "PurgeFailed",
    "Purger",
    "Purging",
    "PurgingLimits",
    "TagApi",
    "TagPurger",
    "UrlPurger",
    "cloudflare",
    "fastly",
    "varnish",
]
