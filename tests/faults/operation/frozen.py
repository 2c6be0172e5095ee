"""What a process to be forked imports at last: then its objects are no garbage, and stay shared."""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
