"""When a failed job is tried again (§14): two schedules, both within the 15 minutes that the database accepts."""

from collections.abc import Callable
from typing import Final

STORAGE_FIRST_SECONDS: Final = 5.0
STORAGE_CAP_SECONDS: Final = 870.0
"""14 min 30 s: the database refuses more than 15 minutes, and the jitter stays below it."""
STORAGE_JITTER: Final = 0.2

PROCESSING_SECONDS: Final = (5.0, 30.0, 120.0, 600.0)
"""After processing errors 1 to 4; the fifth dead-letters."""


def storage_delay_seconds(attempt_count: int, random: Callable[[], float], at_least: float | None = None) -> float:
    """5 s doubled with every attempt so far, ±20 %, capped; there is no last attempt.

    `attempt_count` counts the retries before this one; `random` gives 0..1; `at_least` is the pause that the other side
    asked for, which is kept as far as the cap allows.
    """
    # Beyond the cap the exponent would only grow without bound.
    delay = STORAGE_FIRST_SECONDS * 2.0 ** min(attempt_count, 10)
    spread = delay * (1.0 + STORAGE_JITTER * (2.0 * random() - 1.0))
    return min(max(spread, at_least or 0.0), STORAGE_CAP_SECONDS)


def processing_delay_seconds(processing_error_count: int) -> float:
    """The delay after one more processing error, given how many there were before (0 to 4).

    Indexed by processing errors alone, so that storage retries never push a processing retry to a later step. The
    fifth error needs no delay; it gets the last one, which the database ignores.
    """
    return PROCESSING_SECONDS[min(processing_error_count, len(PROCESSING_SECONDS) - 1)]
