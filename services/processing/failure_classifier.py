"""Whose fault a failure is (§12, §14)."""

from dataclasses import dataclass

from libs.storage.errors import StorageRefused, StorageUnavailable
from services.processing.domain import (
    FailureClass,
    FailureCode,
    PermanentFailure,
    StorageDeadlinePassed,
    UploadNotYetStored,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The class that decides about a retry, and the code that is recorded."""

    failure_class: FailureClass
    code: FailureCode


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
        case _:
            return Failure(FailureClass.PROCESSING, FailureCode.PROCESSING_ERROR)
