"""What the library answers. No I/O, no gRPC, no SQL."""

from typing import Final

from libs.tenancy.tenant_context import Action

READ_ASSET: Final = Action(
    code="assets.asset.viewed",
    permission="assets.media.view",
    resource_kind="assets.asset",
    forbidden_code="assets.action_forbidden",
)
