"""The peer that reads are compared with: one FastAPI process over asyncpg that issues the seven statements itself.

Session, membership, BEGIN, tenant context, permission, one read joining the original variant, COMMIT; the same
document, tag and headers as the gateway's answer. Run as ``python -m tests.bench.peer_reads PORT DATABASE_URL``.
"""

import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

import asyncpg
import orjson
import uvicorn
from fastapi import FastAPI, Header, HTTPException, Response

from libs.assets.public_urls import PublicUrls
from libs.assets.rendition_profile import RENDITIONS

SESSION = """SELECT user_id FROM identity.sessions WHERE token_hash = $1 AND revoked_at IS NULL
    AND last_seen_at > now() - interval '12 hours' AND created_at > now() - interval '30 days'"""
MEMBERSHIP = "SELECT id FROM identity.memberships WHERE user_id = $1 AND organization_id = $2 AND status = 'active'"
CONTEXT = "SELECT set_config('bench.organization', $1, true)"
PERMISSION = """SELECT EXISTS (SELECT 1 FROM identity.membership_roles held
    JOIN identity.role_permissions granted USING (role_id)
    WHERE held.membership_id = $1 AND held.business_unit_id IS NULL AND granted.permission_code = $2)"""
READ = """SELECT a.*, v.width, v.height, v.byte_size FROM assets.assets a
    LEFT JOIN assets.asset_variants v ON v.asset_id = a.id AND v.variant_code = 'original'
    WHERE a.id = $1 AND a.organization_id = $2"""


def build(database_url: str, urls: PublicUrls) -> FastAPI:
    """Return the peer application over one database."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with asyncpg.create_pool(database_url, min_size=10, max_size=10) as pool:
            app.state.pool = pool
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/api/v1/assets/{asset_id}")
    async def read_asset(
        asset_id: UUID, authorization: Annotated[str, Header()], x_organization_id: Annotated[UUID, Header()]
    ) -> Response:
        token_hash = hashlib.sha256(authorization.removeprefix("Bearer ").encode()).digest()
        async with app.state.pool.acquire() as connection:
            user_id = await connection.fetchval(SESSION, token_hash)
            membership_id = await connection.fetchval(MEMBERSHIP, user_id, x_organization_id)
            if membership_id is None:
                raise HTTPException(401)
            async with connection.transaction():
                await connection.execute(CONTEXT, str(x_organization_id))
                if not await connection.fetchval(PERMISSION, membership_id, "assets.media.view"):
                    raise HTTPException(403)
                row = await connection.fetchrow(READ, asset_id, x_organization_id)
        if row is None:
            raise HTTPException(404)
        document = _document(row, urls)
        tag = hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()
        return Response(
            orjson.dumps({"data": document}),
            media_type="application/json",
            headers={"ETag": f'"{tag}"', "Cache-Control": "private, no-cache"},
        )

    return app


def _document(row: Any, urls: PublicUrls) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "status": row["status"],
        "accessClass": row["access_class"],
        "mediaKind": row["media_kind"],
        "sourceKind": row["source_kind"],
        "displayName": row["display_name"],
        "originalFilename": row["original_filename"],
        "width": row["width"],
        "height": row["height"],
        "byteSize": row["byte_size"],
        "createdAt": row["created_at"].isoformat(),
        "readyAt": row["ready_at"] and row["ready_at"].isoformat(),
        "archivedAt": None,
        "failureCode": row["failure_code"],
        "failure": None,
        "aiGenerated": False,
        "renditions": {
            one.name: {"url": urls.rendition(row["delivery_token"], row["rendition_profile"], one.name)}
            for one in RENDITIONS[row["rendition_profile"]]
        },
    }


if __name__ == "__main__":
    uvicorn.run(
        build(sys.argv[2], PublicUrls("https://media.example.com")),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
