"""The base class of every configuration section. Sections are frozen, and an unknown key is an error."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema, core_schema


class Settings(BaseModel):
    """A section of the configuration. A field's docstring is its help text on the command line."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        protected_namespaces=(),
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _onto_defaults(cls, given: Any) -> Any:
        """Lays a mapping for a section over the values that its default sets (`sandbox_limits: Limits = Limits(cpu_s=1)`), so
        that one key leaves the others as they were. A section with kinds takes the defaults of the kind."""
        if not isinstance(given, dict):
            return given
        completed = dict(given)
        for name, field in cls.model_fields.items():
            default, value = field.default, given.get(name)
            if (
                isinstance(default, Settings)
                and isinstance(value, dict)
                and "kind" not in type(default).model_fields
            ):
                completed[name] = default.model_dump(exclude_unset=True) | value
        return completed

    @field_validator("*")
    @classmethod
    def _at_home(cls, value: Any) -> Any:
        return at_home(value)

    def refuse_changed(self, keys: Sequence[str], reason: str, section: str = "") -> None:
        """Raises ValueError if one of the keys is not at its default."""
        for key in keys:
            if getattr(self, key) != type(self).model_fields[key].get_default(call_default_factory=True):
                raise ValueError(f"{section}.{key} {reason}" if section else f"{key} {reason}")


def at_home(value: Any) -> Any:
    """Returns a path with the home directory in place of "~", which a shell leaves in `--key=~/x`; other values unchanged."""
    return value.expanduser() if isinstance(value, Path) else value


def refuse_password(key: str, address: str | None, instead: str) -> None:
    """Raises ValueError if an address contains a user or a password, since addresses are printed and saved with the run.

    The message does not show the address. Do not call this in a field's own validator: pydantic would show its input.

    instead: where the password belongs.
    """
    if address is not None and re.match(
        r"\w+://([^/?#]*@|[^/?#]*:[^?#]*@)", address
    ):  # a secret key may have a slash in it
        raise ValueError(f"{key}: the address holds a user or a password: leave them out, and set {instead}")


@dataclass(frozen=True)
class DefaultKind:
    """The rule of a tagged union for mappings without a `kind`: the kind follows from a key in the mapping (`of_key`), else
    it is the default, `kind`.

    The default kind comes last in the union: --help shows the last kind's docstring for `kind`, and the first kind's
    docstring for a key that several kinds have."""

    kind: str
    of_key: Mapping[str, str]

    def of(self, given: Mapping[str, Any], otherwise: str | None = None) -> Any:
        """Returns the kind of a mapping. otherwise: the kind if neither `kind` nor a key of `of_key` is given; default: the
        rule's default kind."""
        implied = next((self.of_key[key] for key in self.of_key if key in given), otherwise or self.kind)
        return given.get("kind", implied)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def say(given: Any) -> Any:
            return {**given, "kind": self.of(given)} if isinstance(given, dict) else given

        return core_schema.no_info_before_validator_function(say, handler(source))


def default_kind(kind: str, **of_key: str) -> DefaultKind:
    """Returns the rule for a default kind. of_key: the kind that follows from a key's presence, by key."""
    return DefaultKind(kind, of_key)
