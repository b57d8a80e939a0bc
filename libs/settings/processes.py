"""Which process reads which groups: the one table.

A field `group: G` is required; `group: G | None` may be absent as a whole. A variable of a group that a process does
not have is refused when it starts, so that a misplaced secret is noticed instead of lying in the wrong process (§7).
"""

from dataclasses import dataclass
from typing import ClassVar

from libs.settings.groups import (
    CrossOrigin,
    Database,
    DataPolicy,
    ImageLoop,
    Listener,
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
    """The read-only view of the queue."""

    service_name: ClassVar[str] = "ninaku-processing"

    listener: Listener
    database: Database


@dataclass(frozen=True)
class MediaWorkerSettings(ProcessSettings):
    """The image worker: no key that signs or verifies anything. Without `storage` it stays idle (§11).

    With `listener` it answers health checks. Without `public_store` public renditions go to `a/` of the S3 bucket.
    """

    service_name: ClassVar[str] = "ninaku-media-worker"

    listener: Listener | None
    database: Database
    image_loop: ImageLoop
    storage: WorkerStorage | None
    public_store: PublicStore | None

    def contradictions(self) -> tuple[str, ...]:
        """The public store alone is half a storage."""
        if self.public_store is not None and self.storage is None:
            return (f"the {PublicStore.title} group is set but the {WorkerStorage.title} group is not",)
        return ()


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
