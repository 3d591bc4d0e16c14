"""Base of every configuration section: frozen, and an unknown key is an error."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Settings(BaseModel):
    """A field's docstring is its help text on the command line."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=()
    )

    def refuse_changed(self, keys: Sequence[str], reason: str, section: str = "") -> None:
        """Raises ValueError where one of the keys is not at its default."""
        for key in keys:
            if getattr(self, key) != type(self).model_fields[key].get_default(call_default_factory=True):
                raise ValueError(f"{section}.{key} {reason}" if section else f"{key} {reason}")


def refuse_password(key: str, address: str | None, instead: str) -> None:
    """Raises ValueError where an address, which is printed and kept with the run, holds a user or a password: without
    showing it (so not from a field's own validator, whose input is shown). instead: where the password belongs."""
    if address is not None and re.match(
        r"\w+://([^/?#]*@|[^/?#]*:[^?#]*@)", address
    ):  # a secret key may have a slash in it
        raise ValueError(f"{key}: the address holds a user or a password: leave them out, and set {instead}")


@dataclass(frozen=True)
class KindUnlessSaid:
    """Of a tagged union: a mapping that names no kind is of that of a key that it has, or of `kind`. The default kind
    comes last in the union: --help takes a kind's docstring from the last, those of a key that several kinds have from
    the first."""

    kind: str
    of_key: Mapping[str, str]

    def of(self, given: Mapping[str, Any], otherwise: str | None = None) -> Any:
        """The kind of a mapping; otherwise: where neither it nor a key of it says one."""
        implied = next((self.of_key[key] for key in self.of_key if key in given), otherwise or self.kind)
        return given.get("kind", implied)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def say(given: Any) -> Any:
            return {**given, "kind": self.of(given)} if isinstance(given, dict) else given

        return core_schema.no_info_before_validator_function(say, handler(source))


def kind_unless_said(kind: str, **of_key: str) -> KindUnlessSaid:
    """See KindUnlessSaid. of_key: the kinds that a key alone stands for."""
    return KindUnlessSaid(kind, of_key)
