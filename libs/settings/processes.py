"""Which process reads which groups: the one table.

A field `group: G` is required; `group: G | None` may be absent as a whole. A variable of a group that a process does
not have is refused when it starts, so that a misplaced secret is noticed instead of lying in the wrong process (§7).
"""

from dataclasses import dataclass
from typing import ClassVar

from libs.settings.groups import (
    CloudflarePurge,
    CloudFrontPurge,
    CrossOrigin,
    Database,
    DataPolicy,
    ImageLoop,
    Listener,
    NoCdn,
    Observability,
    PublicDelivery,
    PublicStore,
    PublicStoreOperator,
    ServiceTokenVerification,
    StorageContract,
    StorageOperator,
    UploadSigning,
    Upstreams,
    WorkerStorage,
)


@dataclass(frozen=True)
class ProcessSettings:
    """What every process has: the name it reports, and how it is observed."""

    service_name: ClassVar[str]

    observability: Observability

    def contradictions(self) -> tuple[str, ...]:
        """What is wrong between groups that are each right."""
        return ()


@dataclass(frozen=True)
class AdmissionSettings(ProcessSettings):
    """Without `upload_signing` every request for an upload answers `assets.storage_unavailable`."""

    service_name: ClassVar[str] = "ninaku-admission"

    listener: Listener
    database: Database
    data_policy: DataPolicy
    upload_signing: UploadSigning | None


@dataclass(frozen=True)
class LibrarySettings(ProcessSettings):
    """The library reads assets and shows their URLs."""

    service_name: ClassVar[str] = "ninaku-library"

    listener: Listener
    database: Database
    public_delivery: PublicDelivery


@dataclass(frozen=True)
class DeliverySettings(ProcessSettings):
    """Delivery accepts services only, so it cannot start without the keys it verifies their tokens with."""

    service_name: ClassVar[str] = "ninaku-delivery"

    listener: Listener
    database: Database
    public_delivery: PublicDelivery
    service_tokens: ServiceTokenVerification


@dataclass(frozen=True)
class ProcessingSettings(ProcessSettings):
    """The read-only view of the queue. It accepts services only, so it needs the keys of their tokens."""

    service_name: ClassVar[str] = "ninaku-processing"

    listener: Listener
    database: Database
    service_tokens: ServiceTokenVerification


@dataclass(frozen=True)
class MediaWorkerSettings(ProcessSettings):
    """The image worker: no key that signs or verifies anything. Without `storage` it stays idle (§11).

    With `listener` it answers health checks. Without `public_store` public renditions go to `a/` of the S3 bucket. At
    most one of the three CDN groups is set; with none, purges are left to another worker (§16).
    """

    service_name: ClassVar[str] = "ninaku-media-worker"

    listener: Listener | None
    database: Database
    image_loop: ImageLoop
    storage: WorkerStorage | None
    public_store: PublicStore | None
    cloudflare: CloudflarePurge | None
    cloudfront: CloudFrontPurge | None
    no_cdn: NoCdn | None

    def contradictions(self) -> tuple[str, ...]:
        """The public store alone is half a storage; there is one CDN, and it stands before the store that is used."""
        problems = []
        if self.public_store is not None and self.storage is None:
            problems.append(f"the {PublicStore.title} group is set but the {WorkerStorage.title} group is not")
        cdns = [group.title for group in (self.cloudflare, self.cloudfront, self.no_cdn) if group is not None]
        if len(cdns) > 1:
            problems.append(f"only one of these groups may be set: {', '.join(cdns)}")
        if self.storage is not None and self.cloudflare is not None and self.public_store is None:
            problems.append(f"the {CloudflarePurge.title} group is for the {PublicStore.title}, which is not set")
        if self.cloudfront is not None and self.public_store is not None:
            problems.append(
                f"the {CloudFrontPurge.title} group is for the S3 bucket, but the {PublicStore.title} is set"
            )
        return tuple(problems)


@dataclass(frozen=True)
class GatewaySettings(ProcessSettings):
    """HTTP only: the gateway has no database and no secret."""

    service_name: ClassVar[str] = "ninaku-gateway"

    listener: Listener
    upstreams: Upstreams
    cross_origin: CrossOrigin


@dataclass(frozen=True)
class StorageCheckSettings(ProcessSettings):
    """`ninaku storage check`: both S3 identities at once, to see what each may do."""

    service_name: ClassVar[str] = "ninaku-storage-check"

    upload_signing: UploadSigning
    storage: WorkerStorage
    public_store: PublicStore | None
    contract: StorageContract


@dataclass(frozen=True)
class StorageApplySettings(ProcessSettings):
    """`ninaku storage apply`: the operator's identities and the origins that browsers post from."""

    service_name: ClassVar[str] = "ninaku-storage-apply"

    operator: StorageOperator
    public_operator: PublicStoreOperator | None
    cross_origin: CrossOrigin


@dataclass(frozen=True)
class StorageReconcileSettings(ProcessSettings):
    """`ninaku storage reconcile`: the operator's identities, and the CDN for what should not have been served."""

    service_name: ClassVar[str] = "ninaku-storage-reconcile"

    operator: StorageOperator
    public_operator: PublicStoreOperator | None
    public_delivery: PublicDelivery
    cloudflare: CloudflarePurge | None
    cloudfront: CloudFrontPurge | None
    no_cdn: NoCdn | None

    def contradictions(self) -> tuple[str, ...]:
        """There is one CDN."""
        cdns = [group.title for group in (self.cloudflare, self.cloudfront, self.no_cdn) if group is not None]
        return (f"only one of these groups may be set: {', '.join(cdns)}",) if len(cdns) > 1 else ()
