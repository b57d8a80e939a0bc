"""Thirty requests a minute for each membership, counted in this process (§9.1)."""

import math
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from libs.errors.refusal import Refusal

REQUESTS: Final = 30
WINDOW_SECONDS: Final = 60.0
MOST_MEMBERSHIPS: Final = 20_000


class RateLimit:
    """A sliding window for each membership.

    It is approximate by design: each replica counts for itself, and of more than `most_memberships` active ones the one
    seen longest ago is forgotten. The cap of open uploads in the database is the real bound.

    Args:
        requests: Admitted within a window.
        window_seconds: Length of the window.
        most_memberships: Bound of the memory.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        requests: int = REQUESTS,
        window_seconds: float = WINDOW_SECONDS,
        most_memberships: int = MOST_MEMBERSHIPS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with nobody counted."""
        self._requests = requests
        self._window = window_seconds
        self._most = most_memberships
        self._clock = clock
        self._admitted: OrderedDict[uuid.UUID, deque[float]] = OrderedDict()

    def admit(self, membership_id: uuid.UUID) -> None:
        """Count one request.

        Raises:
            Refusal: ``foundation.rate_limited`` with ``retryAfterSeconds`` once the window is full; a refused request
                is not counted.
        """
        now = self._clock()
        times = self._admitted.setdefault(membership_id, deque())
        self._admitted.move_to_end(membership_id)
        while times and times[0] <= now - self._window:
            times.popleft()
        if len(times) >= self._requests:
            seconds = max(1, math.ceil(times[0] + self._window - now))
            raise Refusal("foundation.rate_limited", meta={"retryAfterSeconds": str(seconds)})
        times.append(now)
        while len(self._admitted) > self._most:
            self._admitted.popitem(last=False)
