"""Admission over gRPC: protobuf to domain and back, nothing else."""

from datetime import datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from ninaku.admission.v1 import admission_pb2 as pb
from ninaku.admission.v1 import admission_pb2_grpc, resources_pb2

from libs.assets.entity_tag import entity_tag
from libs.assets.messages import ACCESS_CLASS_VALUES, asset_document, asset_to_message
from libs.assets.public_urls import PublicUrls
from libs.rpc.identifiers import uuid_or_nobodys
from libs.rpc.metadata import current_call, current_traceparent
from libs.tenancy.callers import user_caller
from services.admission.domain import UploadForm, UploadRequest
from services.admission.use_cases import Admission, complete_upload, request_upload

_CLASS_OF_VALUE = {value: access_class for access_class, value in ACCESS_CLASS_VALUES.items()}


class AdmissionServicer(admission_pb2_grpc.AdmissionServicer):
    """Implements `ninaku.admission.v1.Admission`.

    Args:
        admission: What the use cases work with.
        urls: Public URLs of renditions; None when storage is not configured.
    """

    def __init__(self, admission: Admission, urls: PublicUrls | None) -> None:
        """Keep both."""
        self._admission = admission
        self._urls = urls

    async def RequestUpload(self, request: pb.RequestUploadRequest, context: Any) -> pb.RequestUploadResponse:
        """Answer the asset and the form."""
        call = current_call()
        requested = await request_upload(
            self._admission,
            lambda: user_caller(call.metadata),
            UploadRequest(
                idempotency_key=request.idempotency_key,
                media_type=request.media_type,
                byte_size=request.byte_size,
                access_class=_CLASS_OF_VALUE.get(request.access_class),
                display_name=request.display_name if request.HasField("display_name") else None,
                original_filename=request.original_filename if request.HasField("original_filename") else None,
            ),
            call.request_id,
        )
        return pb.RequestUploadResponse(
            asset=asset_to_message(requested.asset, self._urls),
            upload=None if requested.form is None else _form_message(requested.form),
            replayed=requested.replayed,
        )

    async def CompleteUpload(self, request: pb.CompleteUploadRequest, context: Any) -> pb.CompleteUploadResponse:
        """Answer the asset after the completion, with its tag."""
        call = current_call()
        asset = await complete_upload(
            self._admission,
            user_caller(call.metadata),
            uuid_or_nobodys(request.upload_id),
            call.request_id,
            current_traceparent(),
        )
        message = asset_to_message(asset, self._urls)
        return pb.CompleteUploadResponse(asset=message, etag=entity_tag(asset_document(message)))


def _form_message(form: UploadForm) -> resources_pb2.Upload:
    return resources_pb2.Upload(
        id=str(form.upload_id),
        url=form.url,
        fields=form.fields,
        max_bytes=form.max_bytes,
        expires_at=_timestamp(form.expires_at),
    )


def _timestamp(moment: datetime) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp
