"""The environment, read once into frozen groups."""

from libs.settings.errors import SettingsError
from libs.settings.loading import known_variables, load, process_variables
from libs.settings.processes import (
    AdmissionSettings,
    DeliverySettings,
    GatewaySettings,
    LibrarySettings,
    MediaWorkerSettings,
    ProcessingSettings,
    StorageApplySettings,
    StorageCheckSettings,
    StorageReconcileSettings,
)

__all__ = [
    "AdmissionSettings",
    "DeliverySettings",
    "GatewaySettings",
    "LibrarySettings",
    "MediaWorkerSettings",
    "ProcessingSettings",
    "SettingsError",
    "StorageApplySettings",
    "StorageCheckSettings",
    "StorageReconcileSettings",
    "known_variables",
    "load",
    "process_variables",
]
