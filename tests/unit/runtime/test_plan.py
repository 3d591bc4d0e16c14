import json
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import driver
from configs.load import load_run
from sparring.core.project_files import EXAMPLES
from sparring.problems.loader import load_problems
from sparring.runtime import plan
from sparring.runtime.hardware import settled
from sparring.runtime.memory_plan import Shape
from sparring.runtime.placement import Node, shares
from tests.unit.runtime.makers import start_at

ONE_PROCESS = ("--config", "debug", "--sandbox.backend", "process")


@pytest.fixture
def of_size(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """of_size(parameters): instead of the shapes that the models' configs give, or a hub of which it would be asked. 0: the
    configs cannot be read."""

    def give(parameters: int, **heads: int) -> None:
        monkeypatch.setattr(plan, "parameters", lambda model: parameters)
        small = {"adapter": 1, "layers": 1, "hidden": 1, "intermediate": 1, "keys": 1, "vocabulary": 1}
        small |= {"heads": 4, "key_heads": 1} | heads
        shape = Shape(parameters=parameters, linear=parameters, **small)
        shapes = lambda config: dict.fromkeys(config.policies, shape) if parameters else None  # noqa: E731
        monkeypatch.setattr(plan, "shapes_of", shapes)

    return give


def planned(tmp_path: Path, *arguments: str, done: int = 0, own: bool = False) -> plan.Plan:
    """done: steps of the checkpoint that it begins from. own: whether that checkpoint is one of this run."""
    config = load_run([*ONE_PROCESS, "--device", "cpu", *arguments])[0].to_config()
    run = tmp_path / ("run" if own else "other")
    start = start_at(
        tmp_path / "run",
        models={role: config.policy(role).model for role in config.policies},
        checkpoint=run / "checkpoints" / f"step_{done:06d}" if done else None,
        state={"step": done} if done else None,
        host_bytes=20 << 30,
        ways_out=lambda: ["--generator.learner.lora.rank 16"],
    )
    return plan.make_plan(config, start, (), ())


def line_of(made: plan.Plan, subject: str) -> str:
    (line,) = (line for line in made.lines if line.startswith(subject))
    return line


def amount(made: plan.Plan, subject: str) -> float:
    """The figure that the plan gives for memory or disk."""
    return float(line_of(made, subject).split("about ")[1].split(" ")[0])


BOTH_FROM_A_HUB = ("--generator-model", "a", "--discriminator-model", "a")
ADAPTERS = [f"--{role}.learner.lora.rank=8" for role in ("generator", "discriminator")]


def test_a_checkpoint_beyond_the_schedule_is_refused(tmp_path: Path) -> None:
    (obstacle,) = planned(tmp_path, done=99, own=True).obstacles
    assert "step_000099: the checkpoint is at step 99, and this schedule has 14 steps" in obstacle
    assert not planned(tmp_path, done=14, own=True).obstacles


def test_a_new_run_from_the_end_of_another_has_nothing_to_do(tmp_path: Path) -> None:
    (obstacle,) = planned(tmp_path, done=14).obstacles
    assert "nothing is left to do" in obstacle and "--generator-model" in obstacle
    last = planned(tmp_path, done=13)
    assert not last.obstacles and line_of(last, "steps: ").startswith("steps: 14 to 14,")


def test_dynamic_sampling_needs_problems_to_spare(tmp_path: Path) -> None:
    (obstacle,) = planned(tmp_path, "--curriculum.dynamic-sampling", "3").obstacles
    assert "curriculum.dynamic_sampling: a step plays all 0 problems" in obstacle


@pytest.mark.parametrize(
    ("architecture", "known"),
    [
        ("Qwen2ForCausalLM", True),
        ("LlamaForCausalLM", True),
        ("CTRLLMHeadModel", True),  # by transformers' implementation
        ("OpenAIGPTLMHeadModel", False),
    ],
)
def test_an_architecture_that_vllm_does_not_load_is_refused(
    tmp_path: Path, architecture: str, known: bool
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "qwen2", "architectures": [architecture]}))
    given = ["--problems-file", "sparring/problems/example_problems.json"]
    for role in ("generator", "discriminator"):
        given += [f"--{role}-model", str(model), f"--{role}.engine.kind", "vllm"]
    obstacles = planned(tmp_path, *given).obstacles
    assert known == (not [text for text in obstacles if architecture in text])
    if not known:
        assert obstacles[0].startswith(f"generator.model {model}: vLLM cannot load its architecture")
        assert "--generator.engine.kind transformers" in obstacles[0]
        instead = planned(tmp_path, *given, *(w.replace("vllm", "transformers") for w in given[2:])).obstacles
        assert not [text for text in instead if architecture in text]


def test_the_size_of_a_model_that_is_here_and_whole_is_known(tmp_path: Path) -> None:
    assert 300_000 < plan.parameters(str(EXAMPLES / "toy/generator")) < 500_000
    assert plan.parameters("owner/name") == 0 == plan.parameters(str(tmp_path))


def test_a_plan_names_models_steps_sandbox_memory_and_disk(tmp_path: Path) -> None:
    made = planned(tmp_path)
    assert not made.obstacles
    for role in ("generator", "discriminator"):
        assert f"sparring/examples/toy/{role}" in line_of(made, f"{role}: ")
    assert all(line_of(made, subject) for subject in ("steps: ", "memory: ", "disk: "))
    assert "plain processes" in "\n".join(made.lines)


def test_an_engine_that_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "find_spec", lambda name: None)
    (obstacle,) = planned(tmp_path, "--generator.engine.kind", "vllm").obstacles
    assert "vLLM is not installed" in obstacle and "--generator.engine.kind transformers" in obstacle
    assert not planned(tmp_path).obstacles


def test_a_wall_clock_below_the_cpu_limit_is_warned_of(tmp_path: Path) -> None:
    def warned(*arguments: str) -> bool:
        return any("wall_s" in warning for warning in planned(tmp_path, *arguments).warnings)

    assert warned("--game.sandbox-limits.cpu-s", "20") and not warned()
    assert not warned("--game.sandbox-limits.cpu-s", "20", "--game.sandbox-limits.wall-s", "80")


@pytest.mark.parametrize(
    ("parameters", "arguments", "warned"),
    [
        (500_000_000, (), True),
        (0, (), True),  # of an unknown size
        (400_000, (), False),
        (500_000_000, ("--learning-rate", "1e-5"), False),
        (500_000_000, ("--generator.learner.lora.rank", "8"), False),
    ],
)
def test_a_tiny_models_learning_rate_is_too_high_for_a_large_one(
    tmp_path: Path, of_size: Callable, parameters: int, arguments: tuple[str, ...], warned: bool
) -> None:
    of_size(parameters)
    made = planned(tmp_path, "--generator-model", "a", *arguments)
    assert warned == any("generator: a learning rate of 0.0003 is for" in said for said in made.warnings)


def test_models_beyond_memory_and_disk_are_refused_with_ways_out(tmp_path: Path, of_size: Callable) -> None:
    of_size(10**13)
    memory, disk = planned(tmp_path).obstacles
    assert "20 GiB may be taken" in memory and "--generator.learner.lora.rank 16; or" in memory
    assert str(tmp_path) in disk and "--output-dir" in disk and "lora.rank" in disk
    _, disk = planned(tmp_path, "--checkpoint.keep", "3").obstacles
    assert "--checkpoint.keep, now 3" in disk


def test_checkpoints_that_are_there_already_need_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_size: Callable
) -> None:
    of_size(10**9)
    each = 2 * 12 * 10**9
    monkeypatch.setattr(plan.shutil, "disk_usage", lambda path: SimpleNamespace(free=3 * each))

    def refused() -> bool:
        made = planned(tmp_path, "--checkpoint.keep", "2")
        return any("--checkpoint.keep" in said for said in made.obstacles)

    assert refused()
    for step in range(6):
        (tmp_path / "run" / "checkpoints" / f"step_{step:06d}").mkdir(parents=True)
    assert not refused()


@pytest.mark.parametrize(
    ("parameters", "settings", "said"),
    [
        (4 * 10**7, (), "written after every step, at most 6 at once"),
        (10**8, (), "written every 15 minutes, at most 4 at once"),
        (10**8, ("--checkpoint.every", "1"), "written after every step, at most 4 at once"),
        (10**8, ("--checkpoint.keep", "2"), "written every 15 minutes, at most 6 at once"),
        (1000, ("--checkpoint.every=5", "--checkpoint.keep=1"), "written after every 5 steps, at most 5"),
        (0, (), "written every 15 minutes"),  # of a hub
    ],
)
def test_a_plan_says_how_often_checkpoints_are_written_and_how_many_are_kept(
    tmp_path: Path, of_size: Callable, parameters: int, settings: tuple[str, ...], said: str
) -> None:
    of_size(parameters)
    assert said in line_of(planned(tmp_path, *BOTH_FROM_A_HUB, *settings), "disk")


def test_adapters_need_less_memory_and_disk(tmp_path: Path, of_size: Callable) -> None:
    of_size(10**8)
    full, adapters = planned(tmp_path), planned(tmp_path, *ADAPTERS)
    assert amount(adapters, "memory") < amount(full, "memory")
    assert 0 == amount(adapters, "disk") < amount(full, "disk"), "16 parameters, and not the models beneath"


def test_a_cluster_that_does_not_answer_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, never listening
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(SystemExit) as ended:
            driver.main(["--config", "debug", "--no-local", "--plan", "--output-dir", str(tmp_path)])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and "RAY_ADDRESS" in told and "ray start --head" in told


def test_more_parts_than_cpus_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(plan.os, "cpu_count", lambda: 2)
    asked = ("--no-local", "--rollout.actors", "6")
    (obstacle,) = planned(tmp_path, *asked).obstacles
    assert "no room for this run" in obstacle and "2 CPUs" in obstacle and "rollout.actors" in obstacle
    monkeypatch.setenv("RAY_ADDRESS", "somewhere:6379")
    assert not planned(tmp_path, *asked).obstacles, "its nodes are not known"


def test_memory_of_a_cluster_is_not_that_of_this_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_size: Callable
) -> None:
    of_size(10**10)
    monkeypatch.setattr(plan.shutil, "disk_usage", lambda path: SimpleNamespace(free=10**15))
    assert any("GiB of memory" in obstacle for obstacle in planned(tmp_path).obstacles)
    monkeypatch.setenv("RAY_ADDRESS", "somewhere:6379")
    made = planned(tmp_path, "--no-local")
    assert not made.obstacles and line_of(made, "memory: ")


def test_a_cache_that_holds_not_one_sequence_is_refused(tmp_path: Path, of_size: Callable) -> None:
    """vLLM would, after all else has started. of_size: 8 bytes a token."""
    of_size(1000)
    cache = ("--generator.engine.kind", "vllm", "--generator.engine.kv-cache-mb", "16")
    most = 2 << 20
    assert not planned(tmp_path, *cache, "--generator.engine.max-model-len", str(most)).obstacles
    (obstacle,) = planned(tmp_path, *cache, "--generator.engine.max-model-len", str(most + 1)).obstacles
    assert all(fact in obstacle for fact in ("kv_cache_mb 16", "takes 17 MiB", f"at most {most} tokens"))


def test_a_critic_of_its_own_is_in_the_checkpoint(tmp_path: Path, of_size: Callable) -> None:
    of_size(10**7)

    def mib(*arguments: str) -> float:
        return amount(planned(tmp_path, *arguments), "disk")

    critic = ("--generator.learner.estimator.critic", "model")
    assert mib(*critic) == pytest.approx(1.5 * mib(), rel=0.01)
    assert mib(*critic, *ADAPTERS) == pytest.approx(0.5 * mib(), rel=0.05), "it is whole beside an adapter"


def test_little_shared_memory_is_told_and_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(plan.memory_plan, "object_store_bytes", lambda *about: 1 << 60)
    made = planned(tmp_path, "--no-local")
    assert any("/dev/shm has" in line and "slower" in line for line in made.lines) and not made.obstacles


def test_plan_starts_nothing_and_exits_without_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.main([*ONE_PROCESS, "--plan", "--output-dir", str(tmp_path)])
    assert "steps: " in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_plan_exits_with_the_reason_why_a_run_cannot_be(
    tmp_path: Path, of_size: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    of_size(10**13)
    with pytest.raises(SystemExit) as ended:
        driver.main([*ONE_PROCESS, "--plan", "--output-dir", str(tmp_path)])
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert "steps: " in told.out and "GiB of memory" in told.err


def test_a_plan_for_gpus_shows_where_each_part_is_or_why_it_finds_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan.memory_plan, "shape_of", lambda _: None)  # no model hub is asked
    monkeypatch.setattr(plan, "shapes_of", lambda *_: None)

    def made(*arguments: str) -> plan.Plan:
        options = ("--config", "single_gpu", "--device", "cuda", "--sandbox.backend", "process", *arguments)
        config = load_run(list(options))[0].to_config()
        nodes = (Node(name="a", address="this machine", gpus=2, cpus=8),)
        given = shares(config, nodes).items()
        chosen = {key: value for key, value in given if "gpus" in key or "actors" in key}
        models = dict.fromkeys(config.policies, str(tmp_path / "none"))
        return plan.make_plan(
            settled(config, chosen), start_at(tmp_path / "run", models=models, nodes=nodes), (), ()
        )

    parts = "1 x rollout actor with 1 GPU, 1 x learner of the generator and the discriminator with 1 GPU"
    assert f"this machine, 2 GPUs: {parts}" in made().lines
    wide = made("--generator.engine.tensor-parallel", "2", "--discriminator.engine.tensor-parallel", "2")
    assert any("no room for this run" in obstacle for obstacle in wide.obstacles)


@pytest.mark.parametrize(
    ("heads", "key_heads", "wide", "widths"),
    [
        (4, 1, 3, "1, 2, 4"),
        (
            28,
            4,
            7,
            "1, 2, 4, 28",
        ),  # as vLLM demands: 7 and 14 GPUs would divide the heads, but not those of keys
    ],
)
def test_heads_that_cannot_be_divided_are_refused(
    tmp_path: Path, of_size: Callable, heads: int, key_heads: int, wide: int, widths: str
) -> None:
    of_size(1000, heads=heads, key_heads=key_heads)
    asked = ("--generator.engine.kind", "vllm", "--generator.engine.tensor-parallel", str(wide))
    (obstacle,) = (said for said in planned(tmp_path, *asked).obstacles if "tensor_parallel" in said)
    assert f"has {heads} attention heads and {key_heads} of keys" in obstacle
    assert obstacle.endswith(f"give one of {widths}")


@pytest.mark.parametrize(
    ("kind", "there", "told"),
    [
        (
            "process",
            (),
            ["lua cannot run: the sandbox has no lua5.4: install it", "q is not part of Sparring"],
        ),
        ("process", ("lua5.4",), ["q is not part of Sparring"]),
        ("docker", (), ["q is not part of Sparring"]),
    ],
)
def test_a_language_that_cannot_run_here_is_known_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, kind: str, there: tuple[str, ...], told: list[str]
) -> None:
    monkeypatch.delenv("Q_BIN", raising=False)
    monkeypatch.setattr(plan.shutil, "which", lambda name, path: name in (*there, "python3") or None)
    said = plan._missing(kind, {"python", "lua", "q"})
    assert len(said) == len(told) and all(map(str.startswith, said, told))


GRIDS = ("--problems.file", str(EXAMPLES / "grids" / "train.json"))


@pytest.mark.parametrize(
    ("arguments", "is_warned"),
    [
        (("--problems.file", "mine.json"), True),
        (GRIDS, True),
        (
            (
                *GRIDS,
                *(f"--{role}.model={EXAMPLES}/kuhn/generator" for role in ("generator", "discriminator")),
            ),
            True,
        ),
        (("--problems.file", str(EXAMPLES / "toy" / "train.json")), False),
        (("--problems.file", "part.json"), False),
        (("--problems.file", "mine.json", *BOTH_FROM_A_HUB), False),
        (("--config", "spiral_tictactoe"), False),
    ],
)
def test_a_toy_model_on_problems_of_another_kind_is_warned_of(arguments, is_warned) -> None:
    """A part of the toy problems, as a sweep writes it, is of their kind."""
    train = load_problems(EXAMPLES / "toy" / "train.json")[:3] if "part.json" in arguments else []
    recipe = () if "--config" in arguments else ONE_PROCESS
    warnings = list(plan._toys(load_run([*recipe, *arguments])[0].to_config(), train))
    assert bool(warnings) == is_warned
    for warning in warnings:
        assert "generator.model and discriminator.model: a toy model" in warning and "\n" not in warning
        assert f"problems.file {arguments[1]}" in warning
