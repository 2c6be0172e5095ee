"""Names of clusters that are not known from an earlier run: by default that of the least record.

The least record may already name an older cluster of other records: it was deleted, and added again
for another person. A name that is taken gets a number in its source, as in ``people~2/3``: neither
an input nor a record can have such a name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import count
from typing import Final

__all__ = ["NUMBERED", "TakenNames"]

NUMBERED: Final = "^([^/~]+)~([0-9]{1,9})/"
"""The prefix of a numbered name, for Python and Java: its source, its number."""
_NUMBERED_NAME: Final = re.compile(NUMBERED)


class TakenNames:
    """The names of known clusters, which new clusters cannot take."""

    def __init__(self, names: Iterable[str]) -> None:
        self._numbers: defaultdict[str, set[int]] = defaultdict(set)
        for name in names:
            match = _NUMBERED_NAME.match(name)
            if match is None:
                self._numbers[name].add(1)
            else:
                self._numbers[f"{match[1]}/{name[match.end() :]}"].add(int(match[2]))

    def free(self, name: str) -> str:
        """Return the name of a record, with the least number that makes it unique."""
        numbers = self._numbers.get(name, ())
        number = next(candidate for candidate in count(1) if candidate not in numbers)
        source, _, record = name.partition("/")
        return name if number == 1 else f"{source}~{number}/{record}"
