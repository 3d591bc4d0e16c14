"""The suite itself: at least a hundred attacks, no two programs alike."""

import importlib.util
from pathlib import Path


def test_a_hundred_distinct_attacks() -> None:
    names, attacks = [], set()
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"catalogue_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for table in (getattr(module, "ATTACKS", {}), getattr(module, "MEETINGS", {})):
            names += table
            attacks |= {repr(attack) for attack in table.values()}
    assert len(names) == len(set(names)) == len(attacks)
    assert len(names) >= 100
