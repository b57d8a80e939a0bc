"""Delivery over gRPC: protobuf to domain and back, nothing else."""

from typing import Any

from ninaku.assets.v1 import resources_pb2
from ninaku.delivery.v1 import asset_delivery_pb2 as pb
from ninaku.delivery.v1 import asset_delivery_pb2_grpc

from libs.assets.asset import SourceKind
from libs.assets.messages import STATUS_VALUES
from libs.assets.public_urls import PublicUrls
from libs.assets.rendition_profile import RENDITIONS
from libs.rpc.metadata import current_call
from libs.tenancy.callers import service_caller
from libs.tenancy.service_tokens import ServiceTokenVerifier
from services.delivery.domain import DescribedAsset, asset_ids_of, rendition_names_of
from services.delivery.repository import DeliveryRepository


class AssetDeliveryServicer(asset_delivery_pb2_grpc.AssetDeliveryServicer):
    """Implements `ninaku.delivery.v1.AssetDelivery`. Takes services only.

    Args:
        repository: The reads.
        verifier: Proves which service is calling.
        urls: Public URLs of renditions.
    """

    def __init__(self, repository: DeliveryRepository, verifier: ServiceTokenVerifier, urls: PublicUrls) -> None:
        """Keep all three."""
        self._repository = repository
        self._verifier = verifier
        self._urls = urls

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        """Answer the known assets in the order they were first named."""
        caller = service_caller(current_call().metadata, self._verifier)
        asset_ids = asset_ids_of(request.asset_ids)
        names = rendition_names_of(request.renditions)
        known = await self._repository.describe_assets(caller, asset_ids)
        return pb.DescribeResponse(
            assets=[self._description(known[asset_id], names) for asset_id in asset_ids if asset_id in known]
        )

    async def GetDeliveryTemplate(
        self, request: pb.GetDeliveryTemplateRequest, context: Any
    ) -> pb.GetDeliveryTemplateResponse:
        """Answer how tiles are addressed."""
        service_caller(current_call().metadata, self._verifier)
        return pb.GetDeliveryTemplateResponse(
            tile_url_template=self._urls.tile_template(), fingerprint=self._urls.fingerprint()
        )

    def _description(self, asset: DescribedAsset, names: frozenset[str] | None) -> pb.AssetDescription:
        shown = asset.is_shown_publicly
        return pb.AssetDescription(
            asset_id=str(asset.id),
            status=STATUS_VALUES[asset.status],
            image_ref=asset.delivery_token if shown else None,
            ai_generated=asset.source_kind is SourceKind.AI_GENERATED,
            renditions=[
                resources_pb2.Rendition(
                    name=rendition.name,
                    url=self._urls.rendition(asset.delivery_token, asset.rendition_profile, rendition.name)
                    if shown
                    else None,
                )
                for rendition in RENDITIONS.get(asset.rendition_profile, ())
                if names is None or rendition.name in names
            ],
            width=asset.width,
            height=asset.height,
            archived=asset.archived,
        )
