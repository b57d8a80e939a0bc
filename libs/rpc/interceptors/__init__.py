"""What surrounds every handler, in one declared order.

From the outside in:

1. `request_context`: the metadata once as a mapping, a request id that is safe to write down, both bound to the task.
2. `tracing`: the caller's W3C trace context continues here.
3. `observation`: duration and status of every call. It sees the status that the caller sees, so it is outside of the
   two that decide it.
4. `deadline`: work ends when nobody waits for it any more.
5. `failures`: the one place where an exception becomes a status. Innermost, so that nothing else ever sees a raw one.
"""

from libs.rpc.interceptors.chain import Interceptor, InterceptorChain
from libs.rpc.interceptors.deadline import DeadlineInterceptor
from libs.rpc.interceptors.failures import FailureInterceptor
from libs.rpc.interceptors.observation import ObservationInterceptor
from libs.rpc.interceptors.request_context import RequestContextInterceptor
from libs.rpc.interceptors.tracing import TracingInterceptor

ORDER: tuple[type[Interceptor], ...] = (
    RequestContextInterceptor,
    TracingInterceptor,
    ObservationInterceptor,
    DeadlineInterceptor,
    FailureInterceptor,
)
"""The declared order, outermost first; a test compares it with what a server is built with, and with what happens."""

__all__ = [
    "ORDER",
    "DeadlineInterceptor",
    "FailureInterceptor",
    "Interceptor",
    "InterceptorChain",
    "ObservationInterceptor",
    "RequestContextInterceptor",
    "TracingInterceptor",
]
