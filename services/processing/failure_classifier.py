"""Whose fault a failure is (§12, §14)."""

from dataclasses import dataclass

from libs.storage.errors import StorageRefused, StorageUnavailable
from services.processing.cdn import CdnRefused, CdnUnavailable
from services.processing.domain import (
    FailureClass,
    FailureCode,
    PermanentFailure,
    StorageDeadlinePassed,
    UploadNotYetStored,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The class that decides about a retry, the code that is recorded, and the pause that the other side asked for."""

    failure_class: FailureClass
    code: FailureCode
    retry_after_seconds: float | None = None


def classify(error: BaseException) -> Failure:
    """Storage trouble passes and is never counted; a permanent failure is the upload's; all the rest is ours.

    A store that refuses (access denied, no such bucket) is counted as ours, so that somebody looks at it (§14).
    """
    match error:
        case PermanentFailure():
            return Failure(FailureClass.PERMANENT, error.code)
        case UploadNotYetStored():
            return Failure(FailureClass.STORAGE, FailureCode.UPLOAD_MISSING)
        case StorageUnavailable() | StorageDeadlinePassed():
            return Failure(FailureClass.STORAGE, FailureCode.STORAGE_UNAVAILABLE)
        case StorageRefused():
            return Failure(FailureClass.PROCESSING, FailureCode.STORAGE_REFUSED)
        case CdnUnavailable():
            return Failure(FailureClass.STORAGE, FailureCode.CDN_UNAVAILABLE, error.retry_after_seconds)
        case CdnRefused():
            # Never a finished purge, however often it is refused: somebody has to mend the token (§16).
            return Failure(FailureClass.STORAGE, FailureCode.CDN_REFUSED)
        case _:
            return Failure(FailureClass.PROCESSING, FailureCode.PROCESSING_ERROR)


def classify_purge(error: BaseException) -> Failure:
    """As `classify`, but nothing counts against a purge: it is tried until it is done (§16)."""
    failure = classify(error)
    return Failure(FailureClass.STORAGE, failure.code, failure.retry_after_seconds)
