"""What `pip install` makes of a clone works far from it: the whole package, and the judge alone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.houses import ROOT, copy_house, run

pytestmark = pytest.mark.slow  # wheels are built, and each test runs processes of its own

ONLY_DECLARED = """
import sys
from importlib.metadata import distribution, packages_distributions
from packaging.requirements import Requirement
from pathlib import Path

site = sys.argv.pop(1)
sys.path.insert(0, site)

def with_all_that_they_need(requirements, extras, found):
    for asked in map(Requirement, requirements):
        wanted = not asked.marker or any(asked.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if wanted and asked.name.lower() not in found:
            found.add(asked.name.lower())
            with_all_that_they_need(distribution(asked.name).requires or (), asked.extras, found)
    return found

declared = {name.replace("_", "-") for name in with_all_that_they_need(distribution("sparring-judge").requires, (), set())}
others = {
    module
    for module, names in packages_distributions().items()
    if not any(name.lower().replace("_", "-") in declared | {"sparring-judge"} for name in names)
}
assert {"torch", "ray", "vllm", "yaml"} <= others

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in others:
            raise ModuleNotFoundError(f"{name} is of no package that the judge declares", name=name)

sys.meta_path.insert(0, Refuse())
"""
"""Head of a program that finds no packages but the judge's declared dependencies."""


def install(house: Path, site: Path) -> None:
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, house.parent if house.name == "sandbox_workers" else house)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", site, house], check=True, capture_output=True, text=True)


def test_the_installed_package_trains(tmp_path: Path) -> None:
    house, site = copy_house(tmp_path / "house"), tmp_path / "site"
    shutil.rmtree(house / "docker")
    install(house, site)
    shutil.rmtree(house)
    (tmp_path / "empty").mkdir()
    start = f"import sys; sys.path.insert(0, {str(site)!r}); from sparring.__main__ import main; main()"
    run(
        tmp_path / "empty", "-c", start, "train", "--config", "debug", "--run-name", "own", "--sandbox.backend", "process",
        "--n-discriminator-steps", 0, "--n-generator-steps", 0, "--k-alternating-steps", 1, "--no-evaluation.enabled",
    )  # fmt: skip
    assert (tmp_path / "empty/output/own/training_results.json").is_file()


def test_the_judge_needs_no_packages_but_its_own(tmp_path: Path) -> None:
    house, site = copy_house(tmp_path / "house"), tmp_path / "site"
    install(house / "sandbox_workers", site)
    shutil.rmtree(house)
    empty = tmp_path / "empty"
    empty.mkdir()
    job = {"id": 1, "program": "def f(x): return x + 1", "tests": ["assert f(1) == 2", "assert f(1) == 3"]}
    (empty / "jobs.jsonl").write_text(json.dumps(job), "utf-8")
    command = f"{ONLY_DECLARED}\nfrom sparring.__main__ import main\nmain()"
    judged = run(empty, "-c", command, site, "judge", "judge", "jobs.jsonl", "--sandbox", "process")
    verdicts = json.loads(judged.splitlines()[-1])["verdicts"]
    assert [verdict["status"] for verdict in verdicts] == ["PASSED", "WRONG_ANSWER"]
    run(empty, "-c", command, site, "keys", "add", "alice")
    assert (empty / "keys.json").is_file()
    serves = "import sandbox_workers.service, sandbox_workers.reward, sandbox_workers.docker_backend, sparring.web.service"
    run(empty, "-c", f"{ONLY_DECLARED}\n{serves}", site)
    with pytest.raises(AssertionError, match="only the judge is installed"):
        run(empty, "-c", command, site, "solve")
