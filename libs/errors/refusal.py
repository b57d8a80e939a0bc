"""The one exception that a service answers a caller with."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from libs.errors.registry import REGISTRY, ErrorEntry


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that is not acceptable, and why."""

    field: str
    """Path of the field as the protobuf names it, for example ``byte_size``."""
    description: str
    """One plain sentence."""


class Refusal(Exception):
    """A request is refused with a registered public code.

    Args:
        code: A code of the registry; an unknown one raises ``KeyError`` here, where it is written, and not at a caller.
        meta: More for machines, such as ``retryAfterSeconds``; text values only, safe to show.
        violations: The offending fields, for ``foundation.validation_failed``.
    """

    def __init__(
        self,
        code: str,
        *,
        meta: Mapping[str, str] | None = None,
        violations: tuple[FieldViolation, ...] = (),
    ) -> None:
        """Look the code up and keep what travels with it."""
        self.entry: ErrorEntry = REGISTRY[code]
        self.meta: Mapping[str, str] = MappingProxyType(dict(meta or {}))
        self.violations = violations
        super().__init__(code)

    @property
    def code(self) -> str:
        """The public code."""
        return self.entry.code


def invalid(*violations: FieldViolation) -> Refusal:
    """Return the refusal of a request whose fields are not acceptable."""
    return Refusal("foundation.validation_failed", violations=violations)
