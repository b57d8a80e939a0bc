"""CloudFront: telling the CDN in front of the S3 bucket to forget paths (plan B, §16)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr

from libs.storage.clients import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, isolated_session
from libs.storage.errors import StorageError, StorageRefused, StorageUnavailable

PROVIDER: Final = "cloudfront"
_REGION: Final = "us-east-1"
"""CloudFront is one global service, signed for this region."""
_PASSING_CODES: Final = frozenset(
    {
        "TooManyInvalidationsInProgress",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequests",
        "SlowDown",
        "InternalError",
        "ServiceUnavailable",
    }
)


@dataclass(frozen=True, slots=True)
class DistributionAccount:
    """One distribution and the identity that may create its invalidations. `endpoint_url` None means AWS."""

    distribution_id: str
    access_key_id: str
    secret_access_key: SecretStr
    endpoint_url: str | None = None


class Invalidations:
    """Creates invalidations in one distribution."""

    def __init__(self, client: Any, distribution_id: str) -> None:
        """`client` is a CloudFront client."""
        self._client = client
        self._distribution_id = distribution_id

    async def create(self, paths: Sequence[str]) -> str:
        """Ask the CDN to forget `paths` (each beginning with a slash); the invalidation's id.

        Every call is a new invalidation: the same reference twice would answer with the old one, which says nothing
        about what was cached since. Raises StorageUnavailable (later may help) or StorageRefused.
        """
        batch = {
            "Paths": {"Quantity": len(paths), "Items": list(paths)},
            "CallerReference": str(uuid4()),
        }
        try:
            answer = await self._client.create_invalidation(
                DistributionId=self._distribution_id, InvalidationBatch=batch
            )
        except ClientError as error:
            raise _from_answer(error) from error
        except (BotoCoreError, aiohttp.ClientError, OSError, TimeoutError) as error:
            raise StorageUnavailable("invalidate", PROVIDER, type(error).__name__) from error
        return str(answer["Invalidation"]["Id"])


@asynccontextmanager
async def open_invalidations(account: DistributionAccount) -> AsyncIterator[Invalidations]:
    """The invalidations of one distribution with a client of their own, closed with the context.

    One attempt per call: whoever asks has a schedule for trying again.
    """
    session = aioboto3.Session(botocore_session=isolated_session())
    config = AioConfig(
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 1},
        ignore_configured_endpoint_urls=True,
    )
    async with session.client(
        "cloudfront",
        region_name=_REGION,
        endpoint_url=account.endpoint_url,
        aws_access_key_id=account.access_key_id,
        aws_secret_access_key=account.secret_access_key.get_secret_value(),
        config=config,
    ) as client:
        yield Invalidations(client, account.distribution_id)


def _from_answer(error: ClientError) -> StorageError:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    passing = code in _PASSING_CODES or status >= 500 or status in (408, 429)
    return (StorageUnavailable if passing else StorageRefused)("invalidate", PROVIDER, code)
