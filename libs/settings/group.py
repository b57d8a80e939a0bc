"""A group of environment variables that belong together."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self, cast

from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict


class SettingsGroup(BaseSettings):
    """One frozen group, read from the variables its fields name with `validation_alias`.

    A group is all there or all absent: a variable with no default that is missing while another of the group is set
    makes the whole group invalid. An empty variable counts as missing.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", case_sensitive=True, env_ignore_empty=True, populate_by_name=True
    )

    title: ClassVar[str]

    @classmethod
    def variables(cls) -> frozenset[str]:
        """The names of every variable the group reads."""
        return frozenset(cast("str", field.validation_alias) for field in cls.model_fields.values())

    @classmethod
    def required_variables(cls) -> frozenset[str]:
        """The names of the variables that have no default."""
        return frozenset(
            cast("str", field.validation_alias) for field in cls.model_fields.values() if field.is_required()
        )

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """The group as `environment` states it. Raises pydantic.ValidationError."""
        source = _MappingSource(cls, environment)
        return cls.model_validate(source())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is passed in counts, so that a group built in code never picks up a stray variable."""
        return (init_settings,)


class _MappingSource(EnvSettingsSource):
    """pydantic-settings' own reading of variables, from a given mapping instead of the process."""

    def __init__(self, settings_cls: type[BaseSettings], environment: Mapping[str, str]) -> None:
        super().__init__(settings_cls)
        self.env_vars = {name: value for name, value in environment.items() if value != ""}

    def __call__(self) -> dict[str, Any]:
        return super().__call__()
