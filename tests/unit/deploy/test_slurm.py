"""The batch script, run as SLURM runs it: with stand-ins for what SLURM and Ray bring."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy" / "slurm.sbatch"
# srun runs the command once for each task of its --ntasks, one after the other
STAND_INS = {
    "scontrol": 'printf "%s\\n" gpu1 gpu2 judge1',
    "hostname": "echo 10.1.0.1 172.17.0.1",
    "srun": """
tasks=1
while [ "${1#--}" != "$1" ]; do
    case $1 in --*=*) shift ;; --ntasks) tasks=$2; shift 2 ;; *) shift 2 ;; esac
done
for ((i = 0; i < tasks; i++)); do SLURM_NODEID=$i "$@"; done
""",
    "ray": 'printf "%s|" "$RAY_AUTH_MODE" ${#RAY_AUTH_TOKEN} "$PYTHONPATH" "$@" >>"$TOLD"; echo >>"$TOLD"; exit ${RAY_ENDS:-0}',
}


def submitted(place: Path, *arguments: str, expect: int = 0, **more: str) -> tuple[list[list[str]], str]:
    """(what each node's ray was told, what the script said)."""
    tree, told, bin_ = place / "tree", place / "told", place / "slurm"
    tree.mkdir(exist_ok=True)
    (tree / "driver.py").touch()
    bin_.mkdir()
    (bin_ / "python").symlink_to(sys.executable)
    for name, body in STAND_INS.items():
        file = bin_ / name if name != "ray" else tree / ".venv" / "bin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/bash\n{body}\n")
        file.chmod(0o755)
    environment = {"PATH": f"{bin_}:{os.environ['PATH']}", "TOLD": str(told), "SLURM_SUBMIT_DIR": str(tree)}
    environment |= {"SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_NODELIST": "gpu[1-2],judge1", **more}
    command = ["bash", str(SCRIPT), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == expect, done.stderr
    lines = told.read_text().splitlines() if told.is_file() else []
    return [line.split("|")[:-1] for line in lines], done.stderr


def command(place: Path, *options: str, arguments: tuple[str, ...]) -> list[str]:
    return [
        "token", "64", str(place / "tree"), "symmetric-run", "--address", "10.1.0.1:6379", "--min-nodes", "3", *options,
        "--disable-usage-stats", "--", "env", "RAY_ADDRESS=10.1.0.1:6379", "python", "driver.py", *arguments,
    ]  # fmt: skip


def test_every_node_runs_the_same_and_judges(tmp_path: Path) -> None:
    arguments = ("--config", "chat", "--run-name", "a b")
    told, _ = submitted(tmp_path, *arguments)
    assert told == [command(tmp_path, '--resources={"sandbox": 2}', arguments=arguments)] * 3


def test_the_last_nodes_do_nothing_but_judge(tmp_path: Path) -> None:
    told, _ = submitted(tmp_path, SPARRING_JUDGES="1", SPARRING_SANDBOXES="5")
    trains = command(tmp_path, arguments=())
    judges = command(tmp_path, '--resources={"sandbox": 5}', "--num-cpus=0", "--num-gpus=0", arguments=())
    assert told == [trains, trains, judges]


@pytest.mark.parametrize(
    ("given", "goes_on"),
    [
        ("--output-dir out --run-name a", "--output-dir out --run-name a --resume"),
        ("--output_dir=out --run-name=a", "--output_dir=out --run-name=a --resume"),
        ("--resume-from x --output-dir=out --seed 2", "--output-dir=out --seed 2 --resume"),
        ("--output-dir=out --resume_from=x", "--output-dir=out --resume"),
        ("--resume-from x --fresh --output-dir=out", "--output-dir=out --resume"),
        ("--output-dir=out --run-name b --resume-from=x", None),
        ("--run-name a", None),
    ],
)
def test_a_requeued_job_goes_on_where_its_run_has_begun(
    given: str, goes_on: str | None, tmp_path: Path
) -> None:
    begun = tmp_path / "tree" / "out" / "a"
    begun.mkdir(parents=True)
    (begun / "config.yaml").touch()
    told, _ = submitted(tmp_path, *given.split(), SLURM_RESTART_COUNT="2")
    assert {" ".join(line[line.index("driver.py") + 1 :]) for line in told} == {goes_on or given}


def test_a_failed_driver_fails_the_job(tmp_path: Path) -> None:
    submitted(tmp_path, RAY_ENDS="7", expect=7)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SPARRING_JUDGES", "3", "SPARRING_JUDGES=3: leaves none of 3 nodes to train on"),
        ("SPARRING_VENV", "elsewhere", "no ray in it; run make setup, or name another"),
        ("SLURM_SUBMIT_DIR", "/", "submit from the root of Sparring: no driver.py in /"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    variable: str, value: str, said: str, tmp_path: Path
):
    told, error = submitted(tmp_path, expect=2, **{variable: value})
    assert said in error and not told


def test_shellcheck_finds_nothing() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    found = subprocess.run(
        ["shellcheck", "--shell=bash", str(SCRIPT)], capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 0, found.stdout
