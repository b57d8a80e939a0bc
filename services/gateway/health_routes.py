"""Whether the process lives, and whether it takes requests."""

from pydantic import BaseModel

from services.gateway.exchange import NO_STORE, Answer, Request, json_answer
from services.gateway.operations import Operation, Success


class Readiness:
    """Whether new requests should come here. Turned on once listening and off when draining begins."""

    def __init__(self) -> None:
        """Start as not ready."""
        self.ready = False


class Health(BaseModel):
    """State of the process."""

    status: str


def health_operations(readiness: Readiness) -> tuple[Operation, ...]:
    """Return ``/healthz`` and ``/readyz``. Neither asks a peer: an outage behind must not take the gateway away too."""

    async def healthz(_: Request) -> Answer:
        return json_answer(200, {"status": "ok"}, (NO_STORE,))

    async def readyz(_: Request) -> Answer:
        if readiness.ready:
            return json_answer(200, {"status": "ready"}, (NO_STORE,))
        return json_answer(503, {"status": "draining"}, (NO_STORE,))

    return (
        Operation(
            method="GET",
            path="/healthz",
            name="healthz",
            tag="Operations",
            summary="Is the process alive?",
            description="Always 200 while the process can answer.",
            handler=healthz,
            successes=(Success(200, "Alive.", Health),),
        ),
        Operation(
            method="GET",
            path="/readyz",
            name="readyz",
            tag="Operations",
            summary="Does the process take requests?",
            description="Speaks for this process only; it asks no other service.",
            handler=readyz,
            successes=(Success(200, "Ready.", Health), Success(503, "Starting or draining.", Health)),
        ),
    )
