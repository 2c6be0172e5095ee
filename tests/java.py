"""How tests run Java."""

from __future__ import annotations

from typing import Final

QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of processes that run for a minute: a third less processor time.

Compiling for speed takes longer than a test uses the code.
"""
