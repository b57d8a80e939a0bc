"""The library over gRPC: protobuf to domain and back, nothing else."""

import functools
from collections.abc import Callable
from typing import Any, Final

from ninaku.library.v1 import library_pb2 as pb
from ninaku.library.v1 import library_pb2_grpc

from libs.assets.asset import Asset
from libs.assets.entity_tag import entity_tag, matches
from libs.assets.messages import asset_document, asset_to_message
from libs.assets.public_urls import PublicUrls
from libs.errors.refusal import Refusal
from libs.rpc.identifiers import uuid_or_nobodys
from libs.rpc.metadata import current_call
from libs.tenancy.callers import user_caller
from libs.tenancy.tenant_context import TenantAccess
from services.library.domain import READ_ASSET
from services.library.repository import NOT_FOUND, LibraryRepository

MOST_REPRESENTATIONS: Final = 4_096
"""About 8 MiB."""


class LibraryServicer(library_pb2_grpc.LibraryServicer):
    """Implements `ninaku.library.v1.Library`.

    Args:
        repository: The reads.
        access: Records denials.
        urls: Public URLs of renditions.
    """

    def __init__(self, repository: LibraryRepository, access: TenantAccess, urls: PublicUrls) -> None:
        """Keep all three."""
        self._repository = repository
        self._access = access
        self._urls = urls
        # By everything that was read, so it is never stale: a changed row is another key. Clients poll and revalidate,
        # and making message, document and tag costs more than a tenth of a read.
        self._represented: Callable[[Asset], pb.GetAssetResponse] = functools.lru_cache(MOST_REPRESENTATIONS)(
            self._represent
        )

    async def GetAsset(self, request: pb.GetAssetRequest, context: Any) -> pb.GetAssetResponse:
        """Answer the asset and its tag, or that the caller has it already."""
        call = current_call()
        caller = user_caller(call.metadata)
        asset_id = uuid_or_nobodys(request.asset_id)
        read = await self._repository.read_asset(caller, asset_id)
        if read.asset is None:
            if read.outcome == NOT_FOUND:
                raise Refusal("assets.not_found")
            # Whose asset it is was not looked at, so the record of the denial names none.
            raise await self._access.denied(caller, READ_ASSET, read.outcome, call.request_id)
        answer = self._represented(read.asset)
        if request.if_none_match and matches(request.if_none_match, answer.etag):
            return pb.GetAssetResponse(etag=answer.etag, not_modified=True)
        return answer

    def _represent(self, asset: Asset) -> pb.GetAssetResponse:
        message = asset_to_message(asset, self._urls)
        # The tag is of the document that is served, and decided here, where the row was read.
        return pb.GetAssetResponse(asset=message, etag=entity_tag(asset_document(message)))
