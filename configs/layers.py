"""Settings in layers, as nested mappings: a recipe, the environment above it, the command line above both."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from sparring.core.settings import DefaultKind, Settings

Section = TypeVar("Section", bound=BaseModel)


def sections(parent: type[BaseModel] | None, key: str) -> dict[str | None, type[Settings]]:
    """Returns the settings class under a key as {None: class}; for a tagged union, the class of each kind as {kind:
    class}; empty if the key holds a value."""
    if parent is None or key not in parent.model_fields:
        return {}
    annotation = parent.model_fields[key].annotation
    found = [
        t for t in get_args(annotation) or (annotation,) if isinstance(t, type) and issubclass(t, Settings)
    ]
    if not found or "kind" not in found[0].model_fields:
        return {None: found[0]} if found else {}
    return {kind: section for section in found for kind in get_args(section.model_fields["kind"].annotation)}


def _rule(parent: type[Settings] | None, key: str) -> DefaultKind | None:
    notes = parent.model_fields[key].metadata if parent and key in parent.model_fields else ()
    return next((note for note in notes if isinstance(note, DefaultKind)), None)


def overlay(
    below: Mapping[str, Any], above: Mapping[str, Any], parent: type[Settings] | None, path: str = ""
) -> dict[str, Any]:
    """Returns `above` merged over `below`. If `above` names another kind of a section, or has a key that stands for
    another kind, the keys that only the old kind has are left out, and a message names them."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(value, Mapping) and old is not None:
            if not isinstance(old, Mapping):
                continue  # not a section: the old value is kept, and validation refuses it
            kinds, rule = sections(parent, key), _rule(parent, key)
            was = rule.of(old) if rule else None
            kind = rule.of(value, otherwise=was) if rule else None
            if kind in kinds and kind != was:
                old, gone = _of_kind(old, kinds[kind], list(kinds.values()))
                if gone:
                    print(f"{path}{key}.kind {kind}: leaves out {', '.join(gone)} of kind {was}")
                value = {**value, "kind": kind}
            value = overlay(old, value, kinds.get(kind), f"{path}{key}.")
        merged[key] = value
    return merged


def _of_kind(
    old: Mapping[str, Any], kind: type[Settings], kinds: Sequence[type[Settings]]
) -> tuple[dict[str, Any], list[str]]:
    """Returns (the values that the kind has, the dotted keys of those that only other kinds have). A key that no kind has
    stays, and validation refuses it. Two kinds may have different sections of one name, as game.rewards."""
    kept: dict[str, Any] = {}
    gone: list[str] = []
    for name, value in sorted(old.items()):
        inner = sections(kind, name).get(None)
        if name not in kind.model_fields and any(name in other.model_fields for other in kinds):
            gone.append(name)
        elif inner is not None and isinstance(value, Mapping):
            same = [section for other in kinds if (section := sections(other, name).get(None)) is not None]
            kept[name], below = _of_kind(value, inner, same)
            gone += [f"{name}.{key}" for key in below]
        else:
            kept[name] = value
    return {name: kept[name] for name in old if name in kept}, gone


def place(location: Sequence[Any], root: type[BaseModel]) -> tuple[str, type[BaseModel] | None]:
    """Returns (dotted key, its section if it is one) for the location of a pydantic error, which names kinds beside
    keys."""
    keys, parts = [], iter(location)
    section: type[BaseModel] | None = root
    for part in parts:
        kinds = sections(section, part)
        keys.append(str(part))
        section = kinds.get(None) or (kinds.get(next(parts, None)) if kinds else None)
    return ".".join(keys), section


def other_kinds(location: Sequence[Any], root: type[BaseModel]) -> str:
    """Returns which other kinds of a section have the unknown key at this location of a pydantic error, as a part of a
    message; empty if there are none.

    Example: "game.kind code_golf takes it, not multistage; "
    """
    section: type[BaseModel] | None = root
    for index, part in enumerate(location):
        if (kinds := sections(section, part)) and None not in kinds:
            kind, *rest = location[index + 1 :]
            takers = [str(other) for other, of_it in kinds.items() if _has(of_it, rest)]
            key, _ = place(location[: index + 1], root)
            return f"{key}.kind {' or '.join(takers)} takes it, not {kind}; " if takers else ""
        section = kinds.get(None)
    return ""


def _has(section: type[BaseModel] | None, keys: Sequence[str]) -> bool:
    if not keys or section is None or keys[0] not in section.model_fields:
        return False
    return len(keys) == 1 or _has(sections(section, keys[0]).get(None), keys[1:])


def leaves(values: Mapping[str, Any], dot: str = ".") -> Iterator[tuple[str, Any]]:
    """Yields (dotted key, value) for each leaf of a nested mapping."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}{dot}{path}", leaf) for path, leaf in leaves(value, dot))
        else:
            yield key, value


def with_values(section: Section, values: Mapping[str, Any]) -> Section:
    """Returns a copy of a section in which the dotted keys have these values, which are not validated."""
    own: dict[str, Any] = {key: value for key, value in values.items() if "." not in key}
    inner: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        name, dot, rest = key.partition(".")
        if dot:
            inner.setdefault(name, {})[rest] = value
    own |= {name: with_values(getattr(section, name), of) for name, of in inner.items()}
    return section.model_copy(update=own)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nested mapping of dotted keys: the inverse of `leaves`."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return tree
