"""Makes the options of a command from a settings class, for the keys of every kind of a section."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_settings import BaseSettings, CliSettingsSource


class CommandLine(CliSettingsSource[Any]):
    """Makes the options of all kinds. If several kinds have a section of one name, such as game.rewards, the library makes
    options for the first kind's keys only."""

    def __init__(self, settings: type[BaseSettings], **given: Any) -> None:
        self._kinds_of: dict[type[BaseModel], Sequence[type[BaseModel]]] = {}
        """The kinds of a section, by each of these kinds."""
        super().__init__(settings, **given)

    def _add_parser_submodels(
        self, parser: Any, model: type[BaseModel], sub_models: list[type[BaseModel]], *args: Any, **given: Any
    ) -> None:
        *_, field_name, _field_info, _alias_names = args
        kinds = self._kinds_of.get(model, ())
        sub_models = list(dict.fromkeys([*sub_models, *_sections(kinds, field_name)]))
        self._kinds_of |= dict.fromkeys(sub_models, sub_models)
        super()._add_parser_submodels(parser, model, sub_models, *args, **given)


def _sections(kinds: Sequence[type[BaseModel]], name: str) -> list[type[BaseModel]]:
    """Returns the classes of the section `name` in those kinds that have it."""
    fields: Sequence[Mapping[str, Any]] = [kind.model_fields for kind in kinds]
    found = [of_kind[name].annotation for of_kind in fields if name in of_kind]
    return [section for section in found if isinstance(section, type) and issubclass(section, BaseModel)]
