"""The last import of the fork server: freezes its objects, so their memory stays shared."""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
