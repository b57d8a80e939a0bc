"""What object storage can answer besides yes and no such object."""


class StorageError(Exception):
    """An operation on object storage failed. `code` is the store's own word, or the kind of network failure."""

    def __init__(self, operation: str, provider: str, code: str) -> None:
        self.operation = operation
        self.provider = provider
        self.code = code
        super().__init__(f"{operation} on {provider}: {code}")


class StorageUnavailable(StorageError):
    """It may work later: the store answered 5xx or asked to slow down, or could not be reached in time."""


class StorageRefused(StorageError):
    """Waiting does not cure it: the store denied the operation, or does not have the bucket."""
