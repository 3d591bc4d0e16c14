"""The cluster files say what Ray and our own command line understand. No cluster is started."""

import json
import os
import re
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from configs.load import load_run

ROOT = Path(__file__).resolve().parents[3]
FILES = ("ray_cluster.yaml", "deploy/aws.yaml", "deploy/gcp.yaml")


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_ray_takes_the_file(name: str) -> None:
    config = prepare_config(read(name))
    validate_config(config)
    with pytest.raises(jsonschema.ValidationError):
        validate_config({**config, "workers": 3})


@pytest.mark.parametrize("name", FILES)
def test_what_a_file_names_is_there(name: str) -> None:
    commands = [line for key, lines in read(name).items() if key.endswith("_commands") for line in lines]
    types = read(name).get("available_node_types", {}).values()
    commands += [line for of in types for line in of.get("worker_setup_commands", ())]
    named = {path for line in commands for path in re.findall(r"(?:requirements|docker)/\S+\.sh", line)}
    assert named == {"requirements/install.sh", "docker/engine.sh"}
    assert all(os.access(ROOT / path, os.X_OK) for path in named)
    assert any("--head" in line and "--dashboard-host=127.0.0.1" in line for line in commands)


@pytest.mark.parametrize("name", FILES[1:])
def test_only_sandbox_nodes_judge_and_they_do_nothing_else(name: str) -> None:
    types = read(name)["available_node_types"]
    assert types.keys() == {"head", "gpu", "sandbox"}
    assert types["sandbox"]["resources"] == {"CPU": 0, "sandbox": 4}
    assert "sandbox" not in types["head"]["resources"] | types["gpu"]["resources"]
    assert types["sandbox"]["min_workers"] >= 1, "a run is refused where nobody judges"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.21 172.17.0.1", ["--num-cpus=0", "--num-gpus=0", '--resources={"sandbox":4}']),
        ("10.0.0.11", []),
        ("10.0.0.2", []),
    ],
)
def test_a_machine_of_ones_own_is_what_its_address_says(
    address: str, expected: list[str], tmp_path: Path
) -> None:
    """The commands themselves, as Ray's launcher gives them to bash, with stand-ins for `hostname` and `ray`."""
    bin_, told = tmp_path / "sparring-env" / "bin", tmp_path / "told"
    bin_.mkdir(parents=True)
    stand_ins = {"hostname": f"echo '{address} '", "ray": f'printf "%s\\n" "$@" "$RAY_AUTH_MODE" >{told}'}
    for name, body in stand_ins.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_ / name).chmod(0o755)
    *_, start = read("ray_cluster.yaml")["worker_start_ray_commands"]
    environment = {"PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(tmp_path), "RAY_HEAD_IP": "10.0.0.10"}
    done = subprocess.run(["bash", "-c", start], env=environment, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert told.read_text().splitlines() == ["start", "--address=10.0.0.10:6379", *expected, "token"]


def test_the_rayjob_is_one() -> None:
    job = read("deploy/rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == version("ray")
    assert cluster["authOptions"] == {"mode": "token"}
    groups = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    assert groups.keys() == {"gpu", "sandbox"}
    for group in (cluster["headGroupSpec"], *groups.values()):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {"name", "image", "resources", "volumeMounts"} <= container.keys()
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    assert groups["gpu"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    start = groups["sandbox"]["rayStartParams"]  # the operator puts them into a shell command
    assert json.loads(shlex.split(f"--resources={start['resources']}")[0].partition("=")[2]) == {"sandbox": 2}
    assert start["num-cpus"] == "0" and "resources" not in groups["gpu"]["rayStartParams"]


def test_the_rayjobs_command_is_ours() -> None:
    spec = read("deploy/rayjob.yaml")["spec"]
    python, driver, *arguments = shlex.split(spec["entrypoint"])
    assert (python, driver) == ("python", "driver.py")
    run, _ = load_run(arguments)
    assert run.output_dir == Path("/shared/output") and run.sandbox.workers <= 2
