"""A run is planned for a machine that is not here."""

import re

import pytest

import driver
from sparring.core.errors import SparringError
from sparring.runtime.hardware import detect
from sparring.runtime.machines import machine_named

PLAN = ("--config", "toy:edges", "--plan-for")


@pytest.mark.parametrize(
    ("text", "nodes", "gib", "bf16"),
    [
        ("T4", [1], 14.6, False),
        ("rtx4090", [1], 23.6, True),
        ("24GB", [1], 22.4, True),
        ("8xa100-80gb", [8], 79.1, True),
        ("2x4x40gb", [4, 4], 37.3, True),
    ],
)
def test_gpus_by_name_by_size_and_by_number(text: str, nodes: list[int], gib: float, bf16: bool) -> None:
    found = machine_named(text)
    assert [node.gpus for node in found.nodes] == nodes and found.gpus == sum(nodes)
    assert found.gpu_memory_gib == pytest.approx(gib, abs=0.05) and found.bf16 == bf16
    assert found.device == "cuda" and found.host_bytes is None
    assert len({node.name for node in found.nodes}) == len(nodes)


def test_a_machine_without_a_gpu_has_the_memory_that_is_named() -> None:
    found = machine_named("cpu-16GB")
    assert found.device == "cpu" and found.host_bytes and 12e9 < found.host_bytes < 16e9


@pytest.mark.parametrize(
    "text", ["24", "", "0x24GB", "x24GB", "2x2x2xT4", "0GB", "cpu-0GB", "T5", "24GiB", "cpu-T4", "cpu"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(SparringError, match=re.escape(f"--plan-for {text}:")):
        machine_named(text)


def test_it_is_refused_before_a_model_is_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        driver.main([*PLAN, "24", "--generator-model", "/no/such/model"])
    assert "error: --plan-for 24:" in capsys.readouterr().err


def test_a_plan_for_another_machine_says_nothing_of_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    driver.main([*PLAN, "2x2xT4", "--sandbox.backend", "docker", "--output-dir", "/tmp"])
    shown = capsys.readouterr().out
    assert "device cuda" in shown and "precision fp16" in shown and "node 2, 2 GPUs" in shown
    assert detect().name not in shown and "bubblewrap" not in shown


@pytest.mark.parametrize(("machine", "more"), [("P100", ()), ("cpu-16GB", ("--device", "cuda"))])
def test_a_machine_that_cannot_play_is_refused(
    machine: str, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        driver.main([*PLAN, machine, *more])
    assert machine in capsys.readouterr().err
