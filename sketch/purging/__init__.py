"""Purging: caches are asked to forget what was written."""

from __future__ import annotations

from sketch.purging.events import PurgeEvent
from sketch.purging.lane import PurgingLimits
from sketch.purging.port import CachedKey, PurgeFailed, Purger
from sketch.purging.tag_purger import TagApi, TagPurger, cloudflare, fastly, varnish
from sketch.purging.url_purger import UrlPurger
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
