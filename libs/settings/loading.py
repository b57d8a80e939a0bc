"""From the environment to one frozen object."""

import os
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from libs.settings import groups
from libs.settings.errors import SettingsError
from libs.settings.group import SettingsGroup
from libs.settings.processes import ProcessSettings

P = TypeVar("P", bound=ProcessSettings)


def load(settings_type: type[P], environment: Mapping[str, str] | None = None) -> P:
    """Reads the groups of one process from `environment` (by default the process's own). An empty variable is missing.

    Raises SettingsError naming every problem at once: a required variable that is missing, a group that is only partly
    set, a value that does not fit, and a variable that belongs to another process's groups (§7). Variables that no
    process has heard of are left alone.
    """
    given = os.environ if environment is None else environment
    variables = {name: value for name, value in given.items() if value != ""}
    declared = _declared_groups(settings_type)
    own = frozenset[str]().union(*(group.variables() for group, _ in declared.values()))
    problems = [
        f"{name} belongs to another process and must not be set here"
        for name in sorted((known_variables() - own) & variables.keys())
    ]

    values: dict[str, SettingsGroup | None] = {}
    for field, (group, optional) in declared.items():
        missing = group.required_variables() - variables.keys()
        if optional and not group.variables() & variables.keys():
            values[field] = None
        elif missing:
            problems.append(_incomplete(group, missing, partly=bool(group.variables() & variables.keys())))
        else:
            try:
                values[field] = group.read(variables)
            except ValidationError as error:
                problems.extend(_without_values(error))

    if problems:
        raise SettingsError(settings_type.service_name, tuple(dict.fromkeys(problems)))
    settings = settings_type(**typing.cast("dict[str, Any]", values))
    if contradictions := settings.contradictions():
        raise SettingsError(settings_type.service_name, contradictions)
    return settings


def known_variables() -> frozenset[str]:
    """Every variable that a group of any process reads."""
    return frozenset[str]().union(*(group.variables() for group in _every_group()))


def process_variables(settings_type: type[ProcessSettings]) -> frozenset[str]:
    """Every variable that one process may be given: what a launcher passes on and nothing else."""
    return frozenset[str]().union(*(group.variables() for group, _ in _declared_groups(settings_type).values()))


def _every_group() -> list[type[SettingsGroup]]:
    return [
        member
        for member in vars(groups).values()
        if isinstance(member, type) and issubclass(member, SettingsGroup) and member is not SettingsGroup
    ]


def _declared_groups(settings_type: type[ProcessSettings]) -> dict[str, tuple[type[SettingsGroup], bool]]:
    """Field name → (group, whether it may be absent), from the annotations of a row of the table."""
    declared: dict[str, tuple[type[SettingsGroup], bool]] = {}
    for field, hint in typing.get_type_hints(settings_type).items():
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        members = typing.get_args(hint) or (hint,)
        group = next(member for member in members if member is not type(None))
        declared[field] = (group, type(None) in members)
    return declared


def _incomplete(group: type[SettingsGroup], missing: frozenset[str], *, partly: bool) -> str:
    state = "is only partly set and lacks" if partly else "lacks"
    return f"the {group.title} group {state} {', '.join(sorted(missing))}"


def _without_values(error: ValidationError) -> list[str]:
    # pydantic's own text quotes the input, which may be a secret.
    return [f"{'.'.join(str(part) for part in item['loc'][:1])}: {item['msg']}" for item in error.errors()]
