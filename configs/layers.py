"""Settings in layers, as nested mappings: a recipe, the environment above it, the command line above both."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from sparring.core.settings import DefaultKind, Settings


def sections(parent: type[Settings] | None, key: str) -> dict[str | None, type[Settings]]:
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
                others = {name for section in kinds.values() for name in section.model_fields}
                gone = sorted(old.keys() & others - kinds[kind].model_fields.keys())
                if gone:
                    print(f"{path}{key}.kind {kind}: leaves out {', '.join(gone)} of kind {was}")
                old = {name: old[name] for name in old if name not in gone}
                value = {**value, "kind": kind}
            value = overlay(old, value, kinds.get(kind), f"{path}{key}.")
        merged[key] = value
    return merged


def place(location: Sequence[Any], root: type[Settings]) -> tuple[str, type[Settings] | None]:
    """Returns (dotted key, its section if it is one) for the location of a pydantic error, which names kinds beside
    keys."""
    keys, section, parts = [], root, iter(location)
    for part in parts:
        kinds = sections(section, part)
        keys.append(str(part))
        section = kinds.get(None) or (kinds.get(next(parts, None)) if kinds else None)
    return ".".join(keys), section


def leaves(values: Mapping[str, Any], dot: str = ".") -> Iterator[tuple[str, Any]]:
    """Yields (dotted key, value) for each leaf of a nested mapping."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}{dot}{path}", leaf) for path, leaf in leaves(value, dot))
        else:
            yield key, value


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
