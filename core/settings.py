"""Base of every configuration section: frozen, and an unknown key is an error."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A field's docstring is its help text on the command line."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=()
    )
