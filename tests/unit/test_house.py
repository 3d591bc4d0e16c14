"""Traps of an application that is run from its root."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_our_docker_folder_does_not_shadow_the_docker_sdk() -> None:
    import docker

    assert not (ROOT / "docker" / "__init__.py").exists()
    assert docker.__file__ and Path(docker.__file__).parent != ROOT / "docker"
    assert hasattr(docker, "DockerClient")


def test_no_module_of_the_root_carries_a_standard_library_name() -> None:
    modules = {p.stem for p in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert not modules & sys.stdlib_module_names


def test_the_product_names_no_registry_and_no_path_of_a_workplace() -> None:
    suspects = ("pypi" + ".org", "huggingface" + ".co/", "/root" + "/", "docker" + ".io/")
    kinds = (".py", ".md", ".yaml", ".toml", ".sh", ".lock")
    not_ours = {".venv", ".bench", "output", ".git"}  # not walked either: they hold a hundred thousand files
    found = []
    for folder, below, names in os.walk(ROOT):
        below[:] = set(below) - not_ours
        files = [Path(folder, name) for name in names if name.endswith(kinds)]
        texts = [(file, file.read_text(errors="replace")) for file in files if file.is_file()]
        found += [f"{file.relative_to(ROOT)}: {s}" for file, text in texts for s in suspects if s in text]
    assert not found


def test_make_alone_starts_nothing() -> None:
    asked = subprocess.run(["make", "-n"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not any(starts in asked.stdout for starts in ("driver.py", "pytest", "install"))
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "make run" in said.stdout and "make test" in said.stdout
