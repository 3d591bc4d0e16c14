"""What a run chooses by the machine that it finds itself on, on machines of our own making."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.load import RECIPES, load_run
from configs.schema import Config
from sparring.core.errors import SparringError
from sparring.runtime import hardware as hardware_of_runs
from sparring.runtime import memory_plan
from sparring.runtime.hardware import Hardware, HostMemory, detect, host_memory, of_engine, said, settled
from sparring.runtime.start import fit
from tests.unit.runtime.makers import A100, CPU, H100, QWEN, V100, both

MACHINES = (CPU, V100, A100, H100, replace(H100, gpus=8))


def fitted(config: Config, hardware: Hardware) -> Config:
    """Whatever the model: as for one of 1.5B."""
    return settled(config, choices(config, hardware))


def choices(config: Config, hardware: Hardware) -> dict:
    return hardware_of_runs.choices(config, hardware, lambda model: QWEN["1.5B"])


def learner(config: Config) -> tuple:
    one = config.generator.learner
    return one.precision, one.gradient_checkpointing, one.microbatch_tokens


def of_generator(**sections: object) -> Config:
    return Config.model_validate({"generator": sections})


def engine(config: Config) -> tuple:
    one: Any = config.generator.engine
    return one.dtype, one.max_num_seqs, one.gpu_memory_utilization


@pytest.mark.parametrize(
    ("asked", "hardware", "device", "learns", "plays", "problems"),
    [
        ("auto", CPU, "cpu", ("fp32", False, 16384), ("float32", 64, None), 100),
        # the model does not fit a V100, as the plan says
        ("auto", V100, "cuda", ("fp16", True, 2048), ("float16", 32, 0.298), 40),
        ("auto", A100, "cuda", ("bf16", True, 2048), ("bfloat16", 64, 0.12), 100),
        ("auto", H100, "cuda", ("bf16", True, 8192), ("bfloat16", 256, 0.1), 100),
        ("cpu", H100, "cpu", ("fp32", False, 16384), ("float32", 64, None), 100),
    ],
    ids=["cpu", "v100", "a100", "h100", "h100 unused"],
)
def test_what_is_left_open_follows_the_machine(asked, hardware, device, learns, plays, problems) -> None:
    config = fitted(Config(device=asked), hardware)
    assert (config.device, learner(config), engine(config)) == (device, learns, plays)
    assert config.evaluation.problems == problems
    assert config.discriminator.learner == config.generator.learner


def test_a_model_that_is_left_to_the_machine_follows_its_gpu() -> None:
    own = of_generator(model="auto")
    sizes = [fitted(own, hardware).generator.model.split("-")[-2] for hardware in (CPU, V100, A100)]
    assert sizes == ["1.5B", "1.5B", "3B"]
    assert fitted(own, H100).discriminator.model == own.discriminator.model


@pytest.mark.parametrize(("local", "machine"), [(False, CPU), (True, H100)], ids=["no gpu", "one process"])
def test_without_several_processes_or_a_gpu_nothing_is_shared(local: bool, machine: Hardware) -> None:
    config = fitted(Config(local=local), machine)
    assert {config.rollout.gpus, config.generator.learner.gpus, config.discriminator.learner.gpus} == {None}


def test_engines_divide_what_their_actor_has() -> None:
    alone = load_run(["--config", "spiral_kuhn"])[0].to_config()
    beside: Any = fitted(alone, H100).generator.engine
    apart: Any = fitted(alone, replace(H100, gpus=2)).generator.engine
    own: Any = fitted(Config.model_validate({"rollout": {"gpus": 1.0}}), H100).generator.engine
    assert 0.05 < beside.gpu_memory_utilization < apart.gpu_memory_utilization == 0.9
    assert own.gpu_memory_utilization == 0.9 / 2
    assert fitted(of_generator(engine={"kind": "transformers"}), H100).generator.engine.kind == "transformers"


@pytest.mark.parametrize(
    ("settings", "hardware"),
    [
        ({"workers": 2, "sharding": "fsdp"}, replace(V100, gpus=4)),
        ({}, replace(V100, capability=(6, 0))),  # older than tensor cores
    ],
)
def test_what_is_not_trained_in_fp16(settings: dict[str, object], hardware: Hardware) -> None:
    assert fitted(of_generator(learner=settings), hardware).generator.learner.precision == "fp32"


def test_what_rounds_apart_is_corrected_for() -> None:
    """Learner in bf16, or engine in 16 bits; 0 turns it off."""

    def cap(hardware: Hardware, engine: str | None = None, **learner: object) -> float | None:
        config = of_generator(learner=learner, engine={"dtype": engine})
        return fitted(config, hardware).generator.learner.importance_cap

    assert [cap(hardware) for hardware in (CPU, V100, A100)] == [None, 2.0, 2.0]
    assert cap(A100, precision="fp32") == cap(A100, "float32") == 2.0
    assert cap(A100, "float32", precision="fp32") is None
    assert cap(A100, importance_cap=0) == 0 and cap(A100, importance_cap=5) == 5
    assert cap(CPU, "bfloat16") == cap(CPU, precision="bf16") == 2.0


@pytest.mark.parametrize(
    ("learner", "dtype", "hardware", "tolerance"),
    [
        ({}, None, CPU, 1e-3),
        ({}, None, V100, 0.1),
        ({}, None, A100, 0.5),
        ({}, "float32", A100, 5e-3),  # less exact than on a CPU
        ({"lora": {"quantize": "4bit"}}, "float32", CPU, 0.5),
        ({"lora": {"quantize": "8bit"}}, "float32", V100, 0.5),
        ({"lora": {}, "precision": "bf16"}, "float32", CPU, 0.5),
        ({"lora": {}}, "float32", CPU, 1e-3),
        ({"sharding": "fsdp", "workers": 2, "precision": "bf16"}, "float32", CPU, 0.5),
        ({"precision": "bf16"}, "float32", CPU, 1e-3),
    ],
)
def test_an_engine_differs_from_a_learner_as_precisions_and_rounded_weights_do(
    learner: dict[str, object], dtype: str | None, hardware: Hardware, tolerance: float
) -> None:
    config = of_generator(learner=learner, engine={"dtype": dtype})
    assert fitted(config, hardware).generator.engine.tolerance == tolerance


def test_an_engine_has_adapters_where_it_computes_in_16_bits() -> None:
    def adapter(hardware: Hardware, **engine: str) -> bool | None:
        config = both({"model": "a/b", "learner": {"lora": {}}, "engine": engine})
        return fitted(config, hardware).generator.engine.adapter  # pyright: ignore[reportAttributeAccessIssue]

    assert [adapter(hardware) for hardware in (CPU, V100, A100)] == [False, True, True]
    assert adapter(A100, dtype="float32") is adapter(replace(V100, capability=(6, 0))) is False


GIVEN = {
    "device": "cuda",
    "evaluation": {"problems": 7},
    "rollout": {"actors": 2, "gpus": 0.4},
    "generator": {
        "learner": {
            "precision": "fp32", "gradient_checkpointing": False, "microbatch_tokens": 512, "logits_mb": 64, "gpus": 0.1,
        },
        "engine": {
            "dtype": "float32", "max_num_seqs": 3, "gpu_memory_utilization": 0.11, "probe_tolerance": 0.01, "sleep": False,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("hardware", [V100, A100, H100], ids=["v100", "a100", "h100"])
def test_what_is_given_wins(hardware: Hardware) -> None:
    given = Config.model_validate(GIVEN)
    config = fitted(given, hardware)
    for section in ("generator", "rollout", "evaluation"):
        assert getattr(config, section) == getattr(given, section)
    assert all(key.startswith("discriminator.") for key in choices(given, hardware))


def test_device_cuda_where_no_gpu_is_seen_yet_is_cautious() -> None:
    config = fitted(Config(device="cuda"), CPU)
    assert learner(config) == ("fp32", True, 4096)
    assert config.rollout.gpus == 0.5
    unknown = settled(Config(), hardware_of_runs.choices(Config(), H100, lambda model: None))
    assert (learner(unknown), engine(unknown)) == (("bf16", True, 4096), ("bfloat16", 256, 0.25))


@pytest.mark.parametrize("hardware", MACHINES, ids=["cpu", "v100", "a100", "h100", "8 x h100"])
@pytest.mark.parametrize("recipe", sorted(p.stem for p in RECIPES.glob("*.yaml")))
def test_every_recipe_fits_and_stays_as_it_was_fitted(recipe: str, hardware: Hardware) -> None:
    config = fitted(load_run(["--config", recipe])[0].to_config(), hardware)
    assert choices(config, hardware) == {}
    saved = Config.model_validate_json(config.model_dump_json())
    assert all(fitted(saved, machine) == config for machine in MACHINES), "a resumed run goes on as it began"


@settings(max_examples=100, deadline=None)
@given(
    st.floats(1, 200),
    st.tuples(st.integers(3, 12), st.integers(0, 9)),
    st.integers(1, 16),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_gpu_gives_settings_that_hold_together(memory, capability, gpus, actors, local) -> None:
    hardware = replace(H100, gpu_memory_gib=memory, capability=capability, gpus=gpus)
    config = fitted(Config.model_validate({"local": local, "rollout": {"actors": actors}}), hardware)
    assert choices(config, hardware) == {}
    per_actor = sum(config.policy(r).engine.gpu_memory_utilization or 0.0 for r in config.policies)
    assert 0 < per_actor <= 0.9
    if not local:
        learners = sum(config.policy(r).learner.gpus or 0.0 for r in config.policies)
        assert actors * (config.rollout.gpus or 0.0) + learners <= gpus + 1e-9


# ---------------------------------------------------------------------- what is said
def test_the_machine_in_one_line() -> None:
    assert replace(CPU, offline=True).describe() == "this machine: no GPU; 4 CPU cores, 1000 GiB; offline"
    of_gpu = V100.describe()
    assert (
        all(fact in of_gpu for fact in ("1 x Tesla V100", "15.8 GiB", "7.0", "no bf16"))
        and "\n" not in of_gpu
    )


def test_what_is_alike_is_said_once() -> None:
    words = said(Config(), choices(Config(), H100))
    assert words.startswith("device cuda, evaluation.problems 100, rollout.gpus 0.5, learner.gpus 0.25")
    assert words.count("precision") == 1 and "learner.gradient_checkpointing on" in words
    unlike = of_generator(learner={"precision": "fp32"})
    assert "discriminator.learner.precision bf16" in said(unlike, choices(unlike, H100))


# ---------------------------------------------------------------------- this machine
@pytest.mark.parametrize(("value", "offline"), [("1", True), ("true", True), ("0", False), ("", False)])
@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_is_what_the_variables_say(monkeypatch, name: str, value: str, offline: bool) -> None:
    for other in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert detect().offline is offline


def test_this_machine_is_found() -> None:
    found = detect()
    assert found.cpu_cores >= 1 and found.memory_gib > 0.1
    assert (found.device == "cuda") == torch.cuda.is_available()
    assert (found.gpu is None) == (found.gpus == 0) == (found.capability == (0, 0))


def test_memory_is_the_least_of_the_machines_and_of_the_groups_around_it(tmp_path) -> None:
    machine = psutil.virtual_memory()
    job = tmp_path / "slurm" / "job"
    job.mkdir(parents=True)

    def limited(group: Path, most: str, current: int, cached: int) -> None:
        (group / "memory.max").write_text(f"{most}\n")
        (group / "memory.current").write_text(f"{current}\n")
        (group / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")

    def found(root: Path = tmp_path) -> HostMemory:
        return host_memory(root, "/slurm/job")

    whole = HostMemory(machine.total, pytest.approx(machine.available, rel=0.2))  # type: ignore[arg-type]
    assert found() == whole, "no group says a limit"
    limited(job, "max", 5000, 0)
    limited(tmp_path / "slurm", "9000", 5000, 1000)
    assert found() == (9000, 9000 - 5000 + 1000), "files that are cached give way"
    limited(job, "7000", 7500, 0)
    assert found() == (7000, 0)
    assert host_memory(tmp_path / "none") == whole


def test_of_a_groups_memory_a_twentieth_of_its_own_is_left() -> None:
    assert replace(CPU, memory_gib=32.0, free_gib=31.0).host_bytes == int((31 - 1.6) * 2**30)
    assert CPU.host_bytes is None, "not known"


TOY = {"model": "sparring/examples/toy/generator"}


@pytest.fixture
def no_cluster(monkeypatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_a_run_prints_what_it_found_and_chose(no_cluster, capsys) -> None:
    machine, own = detect(), both(TOY, device="cpu")
    config = fit(own, machine)
    assert config == settled(own, hardware_of_runs.choices(own, machine))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("this machine: ") and second.startswith("chosen: evaluation.problems 100, ")
    fit(config, machine)
    assert "chosen" not in capsys.readouterr().out


def test_what_is_left_open_is_chosen_once(no_cluster, monkeypatch) -> None:
    """The choice reads the models' configs and plans the memory on each rung."""
    asked, choose = [], memory_plan.choose
    monkeypatch.setattr(memory_plan, "choose", lambda *given: asked.append(given) or choose(*given))
    fit(both(TOY), H100)
    assert len(asked) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_settings_that_do_not_go_with_the_machine_are_refused(no_cluster) -> None:
    with pytest.raises(SparringError, match="device cuda: torch finds no GPU on this machine"):
        fit(Config(device="cuda"), detect())
    with pytest.raises(SparringError, match=r"on this machine \(device cpu\): .*fp16 is for device cuda"):
        fit(of_generator(learner={"precision": "fp16"}), detect())


@pytest.mark.parametrize(
    ("machine", "device", "dtype", "exact", "expected"),
    [
        (CPU, "auto", None, False, ("cpu", "float32")),
        (replace(CPU, cpu_bf16=True), "auto", None, False, ("cpu", "bfloat16")),
        (replace(CPU, cpu_bf16=True), "auto", None, True, ("cpu", "float32")),
        (replace(CPU, cpu_bf16=True), "auto", "float32", False, ("cpu", "float32")),
        (V100, "auto", None, False, ("cuda", "float16")),
        (A100, "auto", None, True, ("cuda", "bfloat16")),
        (A100, "cpu", None, False, ("cpu", "float32")),
        (A100, "auto", "float32", False, ("cuda", "float32")),
        (CPU, "cuda", None, False, ("cuda", "float32")),  # refused where the engine is made
    ],
)
def test_an_engine_outside_of_a_run_is_as_the_machine_has_it(
    monkeypatch: pytest.MonkeyPatch,
    machine: Hardware,
    device: str,
    dtype: str | None,
    exact: bool,
    expected: tuple[str, str],
) -> None:
    monkeypatch.setattr(hardware_of_runs, "detect", lambda: machine)
    assert tuple(of_engine(device, dtype, exact_on_cpu=exact).values()) == expected


def test_a_gpu_that_torch_has_no_kernels_for_is_refused(no_cluster) -> None:
    old, own = replace(V100, least_capability=(7, 5)), both(TOY)
    with pytest.raises(SparringError, match=r"Tesla V100.*capability 7\.0.*below 7\.5"):
        fit(Config(), old)
    assert fit(own.model_copy(update={"device": "cpu"}), old).device == "cpu"
    assert fit(own, V100).device == "cuda"


def test_vllms_cpu_build_leaves_a_gpu_unused(no_cluster, capsys) -> None:
    machine = replace(H100, vllm_for_cpu=True)
    assert fit(both(TOY), machine).device == "cpu"
    assert "LOCK=gpu" in capsys.readouterr().out
    with pytest.raises(SparringError, match=r"CPU build.*LOCK=gpu"):
        fit(both(TOY, device="cuda"), machine)
    assert fit(both({**TOY, "engine": {"kind": "transformers"}}, device="cuda"), machine).device == "cuda"


@pytest.mark.parametrize(
    ("built", "oldest"), [(["sm_75", "sm_80", "sm_120", "compute_120"], (7, 5)), ([], (0, 0))]
)
def test_the_oldest_kernels_of_torch_are_known(monkeypatch, built, oldest) -> None:
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built)
    assert hardware_of_runs._least_capability() == oldest
