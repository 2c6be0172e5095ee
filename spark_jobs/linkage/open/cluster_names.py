"""Names of clusters that are not known from an earlier run: that of the least record, or another.

The least record of a cluster may have named one before, which others are in by now: the record was
deleted, and came again as another person's. So a name that is known is taken with a number, in its
source, as in ``people~2/3``: no input is called so, and no record can have the name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import count
from typing import Final

__all__ = ["NUMBERED", "TakenNames"]

NUMBERED: Final = "^([^/~]+)~([0-9]{1,9})/"
"""The beginning of a name with a number, for Python and for Java: its source, its number."""
_NUMBERED: Final = re.compile(NUMBERED)


class TakenNames:
    """The names of known clusters, from which those of new ones have to differ."""

    def __init__(self, names: Iterable[str]) -> None:
        self._numbers: defaultdict[str, set[int]] = defaultdict(set)
        for name in names:
            found = _NUMBERED.match(name)
            if found is None:
                self._numbers[name].add(1)
            else:
                self._numbers[f"{found[1]}/{name[found.end() :]}"].add(int(found[2]))

    def free(self, name: str) -> str:
        """Return a name of a record, with the least number that makes it another one."""
        taken = self._numbers.get(name, ())
        number = next(each for each in count(1) if each not in taken)
        source, _, record = name.partition("/")
        return name if number == 1 else f"{source}~{number}/{record}"
