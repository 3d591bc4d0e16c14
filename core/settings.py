"""Base of every configuration section: frozen, and an unknown key is an error."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


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


def kind_unless_said(kind: str, **of_key: str) -> BeforeValidator:
    """Of a tagged union: a mapping that names no kind is of this one, or of that of a key that it has. It comes last in the union: --help takes a
    kind's docstring and default from the last, those of a key that several kinds have from the first."""

    def say(given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {"kind": next((of_key[key] for key in of_key if key in given), kind), **given}

    return BeforeValidator(say)
