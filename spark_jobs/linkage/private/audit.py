"""What encodings give away by their frequencies (docs/linkage-security.md); every run reports it.

Published attacks begin by telling positions, or whole patterns, apart by how often they come. This
counts how many can be told apart so. It is a lower bound of what an attacker can do, not a proof.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from spark_jobs.linkage.private.limits import Numbers

__all__ = ["audited"]

_ERRORS: Final = 2.0
"""Standard errors that separate two frequencies."""


def audited(frequency: Numbers, records: int, repeated: tuple[int, int, int]) -> dict[str, Any]:
    """Report on one owner's encodings.

    Args:
        frequency: In how many records each position is set.
        records: How many there are.
        repeated: Patterns that more than one record has, such records, and how many the most
            frequent pattern has.
    """
    share = np.sort(frequency / records)
    error = np.sqrt(share * (1 - share) / records)
    apart = np.diff(share) > _ERRORS * np.hypot(error[:-1], error[1:])
    alone = np.concatenate(([True], apart)) & np.concatenate((apart, [True]))
    patterns, of, most = repeated
    return {
        "records": records,
        "positions": len(frequency),
        "positions_never_set": int((frequency == 0).sum()),
        "positions_always_set": int((frequency == records).sum()),
        "positions_told_apart": int(alone.sum()),
        "share_set": {
            "least": float(share[0]),
            "mean": float(share.mean()),
            "most": float(share[-1]),
        },
        "patterns_repeated": patterns,
        "records_with_repeated_pattern": of,
        "most_frequent_pattern": most,
    }
