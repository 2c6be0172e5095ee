"""`portolan prove-coherence` against a running service, alone and behind a Varnish."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from app.proof import Incoherent, Proof
from benchmarks.varnish import PURGE_TOKEN, Varnish, varnish
from mediator.stores.port import SystemConfig
from tests.faults.service import Service
from tests.process.service import scratch_catalogue, unique
