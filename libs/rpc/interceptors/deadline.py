"""Ends work that nobody waits for."""

import asyncio
from typing import Any

from libs.errors.refusal import Refusal
from libs.rpc.interceptors.chain import Answer, Context, Interceptor, Stream
from libs.rpc.interceptors.failures import refuse


class DeadlineInterceptor(Interceptor):
    """Bounds every call that has one answer; streams end when their caller's deadline does.

    Args:
        default_seconds: Bound of a call that came without a deadline.
        longest_seconds: Bound of any call, whatever it asked for.
    """

    def __init__(self, *, default_seconds: float, longest_seconds: float) -> None:
        """Keep the bounds."""
        self._default = default_seconds
        self._longest = longest_seconds

    def around_answer(self, method: str, inner: Answer, *, bounded: bool) -> Answer:
        """Cancel the handler when its time is over, and say so."""
        if not bounded:
            return inner

        async def answer(request: Any, context: Context) -> Any:
            remaining = context.time_remaining()
            seconds = self._default if remaining is None else min(remaining, self._longest)
            try:
                async with asyncio.timeout(seconds):
                    return await inner(request, context)
            except TimeoutError:
                # The handler's own exceptions were turned into a status further in: this one is the bound's.
                return await refuse(context, Refusal("foundation.deadline_exceeded"))

        return answer

    def around_stream(self, method: str, inner: Stream) -> Stream:
        """Leave a stream to its caller's deadline, which gRPC itself enforces by cancelling the handler."""
        return inner
