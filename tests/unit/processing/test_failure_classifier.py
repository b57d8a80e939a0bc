"""Whose fault a failure is, and when it is tried again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.storage.errors import StorageRefused, StorageUnavailable
from services.processing.backoff import (
    PROCESSING_SECONDS,
    STORAGE_CAP_SECONDS,
    processing_delay_seconds,
    storage_delay_seconds,
)
from services.processing.domain import (
    DecoderFailed,
    FailureClass,
    FailureCode,
    ImageRefused,
    PermanentFailure,
    StorageDeadlinePassed,
    UploadNotYetStored,
)
from services.processing.failure_classifier import classify

_FIFTEEN_MINUTES = 900.0


@pytest.mark.case("A3c.02")
@pytest.mark.parametrize(
    ("error", "failure_class", "code"),
    [
        (StorageUnavailable("put", "r2-public", "SlowDown"), FailureClass.STORAGE, FailureCode.STORAGE_UNAVAILABLE),
        (StorageDeadlinePassed(), FailureClass.STORAGE, FailureCode.STORAGE_UNAVAILABLE),
        (UploadNotYetStored(), FailureClass.STORAGE, FailureCode.UPLOAD_MISSING),
        (StorageRefused("put", "r2-public", "AccessDenied"), FailureClass.PROCESSING, FailureCode.STORAGE_REFUSED),
        (PermanentFailure(FailureCode.UPLOAD_MISSING), FailureClass.PERMANENT, FailureCode.UPLOAD_MISSING),
        (PermanentFailure(FailureCode.SIZE_MISMATCH), FailureClass.PERMANENT, FailureCode.SIZE_MISMATCH),
        (ImageRefused(FailureCode.CONTENT_MISMATCH), FailureClass.PERMANENT, FailureCode.CONTENT_MISMATCH),
        (ImageRefused(FailureCode.IMAGE_TOO_LARGE), FailureClass.PERMANENT, FailureCode.IMAGE_TOO_LARGE),
        (ImageRefused(FailureCode.IMAGE_TOO_SMALL), FailureClass.PERMANENT, FailureCode.IMAGE_TOO_SMALL),
        (ImageRefused(FailureCode.IMAGE_CORRUPT), FailureClass.PERMANENT, FailureCode.IMAGE_CORRUPT),
        (DecoderFailed("out of memory"), FailureClass.PROCESSING, FailureCode.PROCESSING_ERROR),
        (TimeoutError(), FailureClass.PROCESSING, FailureCode.PROCESSING_ERROR),
        (KeyError("s3-private"), FailureClass.PROCESSING, FailureCode.PROCESSING_ERROR),
        (ValueError("anything"), FailureClass.PROCESSING, FailureCode.PROCESSING_ERROR),
    ],
)
def test_classifies_storage_permanent_and_processing_failures(
    error: Exception, failure_class: FailureClass, code: FailureCode
) -> None:
    failure = classify(error)
    assert (failure.failure_class, failure.code) == (failure_class, code)


@pytest.mark.case("A3c.03")
def test_schedules_every_processing_retry_for_processing_errors_1_to_4_at_most_15_minutes_ahead() -> None:
    delays = [processing_delay_seconds(errors_before) for errors_before in range(4)]
    assert delays == [5.0, 30.0, 120.0, 600.0]
    assert max(delays) <= _FIFTEEN_MINUTES
    assert processing_delay_seconds(4) == PROCESSING_SECONDS[-1]


@given(attempts=st.integers(min_value=0, max_value=10_000), luck=st.floats(min_value=0.0, max_value=1.0))
def test_doubles_the_storage_delay_within_a_fifth_and_stays_below_15_minutes(attempts: int, luck: float) -> None:
    delay = storage_delay_seconds(attempts, lambda: luck)
    assert 4.0 <= delay <= STORAGE_CAP_SECONDS < _FIFTEEN_MINUTES
    middle = 5.0 * 2.0 ** min(attempts, 10)
    assert delay == STORAGE_CAP_SECONDS or 0.8 * middle <= delay <= 1.2 * middle


def test_spreads_storage_retries_by_chance() -> None:
    assert storage_delay_seconds(3, lambda: 0.0) == pytest.approx(32.0)
    assert storage_delay_seconds(3, lambda: 1.0) == pytest.approx(48.0)
