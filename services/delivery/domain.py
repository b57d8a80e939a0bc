"""What delivery tells other services of assets. No I/O, no gRPC, no SQL."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from libs.assets.asset import AccessClass, AssetStatus, MediaKind, SourceKind
from libs.assets.rendition_profile import RENDITIONS
from libs.errors.refusal import FieldViolation, invalid
from libs.rpc.identifiers import parse_uuid

MOST_ASSETS: Final = 2_000


@dataclass(frozen=True, slots=True)
class DescribedAsset:
    """An asset as consumers may know it; its master, keys and providers are not among it."""

    id: uuid.UUID
    status: AssetStatus
    access_class: AccessClass
    media_kind: MediaKind
    source_kind: SourceKind
    delivery_token: str
    rendition_profile: int
    width: int | None
    height: int | None
    archived: bool

    @property
    def is_shown_publicly(self) -> bool:
        """Whether it has an image reference and public URLs: only a ready, public asset does."""
        return self.status is AssetStatus.READY and self.access_class is AccessClass.PUBLIC


def asset_ids_of(texts: Sequence[str]) -> list[uuid.UUID]:
    """Return the ids in the order they were first named; malformed ones are left out, like unknown ones.

    Raises:
        Refusal: ``foundation.validation_failed`` for none at all, or more than 2,000.
    """
    if not 1 <= len(texts) <= MOST_ASSETS:
        raise invalid(FieldViolation("asset_ids", f"Must name 1 to {MOST_ASSETS} assets."))
    return list(dict.fromkeys(asset_id for text in texts if (asset_id := parse_uuid(text)) is not None))


def rendition_names_of(names: Sequence[str]) -> frozenset[str] | None:
    """Return the renditions asked for; None for all of them.

    Raises:
        Refusal: ``foundation.validation_failed`` for a name that no profile has.
    """
    if not names:
        return None
    known = {rendition.name for renditions in RENDITIONS.values() for rendition in renditions}
    if not known.issuperset(names):
        raise invalid(FieldViolation("renditions", f"Must be among {', '.join(sorted(known))}."))
    return frozenset(names)
