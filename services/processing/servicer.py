"""The queue over gRPC: protobuf to domain and back, nothing else."""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from ninaku.processing.v1 import processing_pb2 as pb
from ninaku.processing.v1 import processing_pb2_grpc

from libs.errors.refusal import FieldViolation, invalid
from libs.rpc.metadata import current_call
from libs.tenancy.callers import operator_caller
from libs.tenancy.service_tokens import ServiceTokenVerifier
from services.processing.domain import JobKind
from services.processing.queue import DeadLetter, QueueDepth, page_size_of, place_of, token_of
from services.processing.queue_repository import QueueRepository

KIND_VALUES: Final[Mapping[JobKind, "pb.JobKind.ValueType"]] = {
    JobKind.PROCESS_UPLOAD: pb.JOB_KIND_PROCESS_UPLOAD,
    JobKind.RENDER_PROFILE: pb.JOB_KIND_RENDER_PROFILE,
    JobKind.PURGE_ASSET: pb.JOB_KIND_PURGE_ASSET,
}
_KINDS: Final[Mapping["pb.JobKind.ValueType", JobKind]] = {value: kind for kind, value in KIND_VALUES.items()}


class ProcessingServicer(processing_pb2_grpc.ProcessingServicer):
    """Implements `ninaku.processing.v1.Processing`. Takes services that act for no organization.

    Args:
        repository: The reads.
        verifier: Proves which service is calling.
    """

    def __init__(self, repository: QueueRepository, verifier: ServiceTokenVerifier) -> None:
        """Keep both."""
        self._repository = repository
        self._verifier = verifier

    async def GetQueueState(self, request: pb.GetQueueStateRequest, context: Any) -> pb.GetQueueStateResponse:
        """Answer the counts."""
        operator_caller(current_call().metadata, self._verifier)
        state = await self._repository.queue_state()
        counted_at = Timestamp()
        counted_at.FromDatetime(state.counted_at)
        return pb.GetQueueStateResponse(
            depths=[_depth(depth) for depth in state.depths],
            dead_letters=[
                pb.DeadLetterCount(kind=KIND_VALUES[depth.kind], error_code=code, count=count)
                for depth in state.depths
                for code, count in depth.dead_letters.items()
            ],
            counted_at=counted_at,
        )

    async def ListDeadLetters(self, request: pb.ListDeadLettersRequest, context: Any) -> pb.ListDeadLettersResponse:
        """Answer one page, newest first."""
        operator_caller(current_call().metadata, self._verifier)
        if request.kind != pb.JOB_KIND_UNSPECIFIED and request.kind not in _KINDS:
            raise invalid(FieldViolation("kind", "Must be a known kind, or not set for every kind."))
        page = await self._repository.dead_letters(
            _KINDS.get(request.kind), place_of(request.page_token), page_size_of(request.page_size)
        )
        return pb.ListDeadLettersResponse(
            dead_letters=[_dead_letter(letter) for letter in page.dead_letters],
            next_page_token=token_of(page.next_place),
        )


def _depth(depth: QueueDepth) -> pb.QueueDepth:
    age = None
    if depth.oldest_ready_age is not None:
        age = Duration()
        age.FromTimedelta(depth.oldest_ready_age)
    return pb.QueueDepth(
        kind=KIND_VALUES[depth.kind],
        ready=depth.ready,
        delayed=depth.delayed,
        leased=depth.leased,
        lease_expired=depth.lease_expired,
        oldest_ready_age=age,
    )


def _dead_letter(letter: DeadLetter) -> pb.DeadLetter:
    created_at, dead_lettered_at = Timestamp(), Timestamp()
    created_at.FromDatetime(letter.created_at)
    dead_lettered_at.FromDatetime(letter.dead_lettered_at)
    return pb.DeadLetter(
        job_id=str(letter.job_id),
        organization_id=str(letter.organization_id),
        asset_id=str(letter.asset_id),
        kind=KIND_VALUES[letter.kind],
        error_code=letter.error_code,
        attempt_count=letter.attempt_count,
        processing_error_count=letter.processing_error_count,
        created_at=created_at,
        dead_lettered_at=dead_lettered_at,
        requeueable=letter.requeue_refusal is None,
        requeue_refusal=letter.requeue_refusal,
    )
