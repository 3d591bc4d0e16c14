"""Builds the parts that both runtimes share."""

from collections.abc import Mapping
from typing import Any

from actors.episodes import EpisodeRunner, Seat
from configs.schema import EMBEDDED, Config
from core.interfaces import Policy, Sandbox
from core.problem import Problem
from core.seeding import derive_seed
from games.multistage import MultistageGame
from games.prompts import format_for
from games.stages import REASONING_STAGES
from learners.state import STATE_FILE
from learners.train_spec import LearnerSpec
from problems.embedded.generate import embedded_path
from problems.loader import load_problems
from problems.splits import split_problems
from runtime.parts import Start

ROLES = ("generator", "discriminator")


def load_splits(config: Config) -> tuple[list[Problem], list[Problem]]:
    """(training, held-out) problems. Raises ProblemFileError."""
    if config.problems.file == EMBEDDED:
        return load_problems(embedded_path("train")), load_problems(embedded_path("held_out"))
    problems = load_problems(config.problems.file)
    if config.problems.held_out_file is None:
        return split_problems(problems, config.problems.held_out_fraction)
    held_out = load_problems(config.problems.held_out_file)
    known = {p.id for p in problems} | {p.description for p in problems}
    shared = next((p for p in held_out if p.id in known or p.description in known), None)
    if shared is not None:
        raise ValueError(
            f"{config.problems.held_out_file}: problem {shared.id} is also in {config.problems.file}: held-out "
            "problems must not be trained on"
        )
    return problems, held_out


def build_policy(config: Config, role: str, model: str) -> Policy:
    """The engines are imported here: only the process that needs one loads it."""
    engine = config.policy(role).engine
    if engine.kind == "vllm":
        from actors.vllm_policy import VllmPolicy

        return VllmPolicy(model, engine, config.device)
    from actors.transformers_policy import TransformersPolicy

    return TransformersPolicy(model, engine, config.device)


def build_runner(config: Config, models: Mapping[str, str], sandbox: Sandbox) -> EpisodeRunner:
    from transformers import AutoTokenizer

    seats = {}
    for role in ROLES:
        settings = config.policy(role)
        tokenizer = AutoTokenizer.from_pretrained(models[role])
        seats[role] = Seat(
            policy=build_policy(config, role, models[role]),
            format=format_for(tokenizer, config.game.test_format),
            max_tokens=settings.max_tokens,
            probe_tolerance=settings.engine.probe_tolerance,
        )
    return EpisodeRunner(MultistageGame(config.game), sandbox, seats, config.seed)


def learner_specs(config: Config, start: Start) -> dict[str, LearnerSpec]:
    """By role."""
    return {role: _learner_spec(config, role, start) for role in ROLES}


def _learner_spec(config: Config, role: str, start: Start) -> LearnerSpec:
    model = start.models[role]
    checkpoint = start.checkpoint / role if start.checkpoint is not None else None
    return LearnerSpec(
        settings=config.policy(role).learner,
        learning_rate=config.policy_learning_rate(role),
        model_path=str(checkpoint) if checkpoint is not None else model,
        reference_path=model,
        state_path=str(checkpoint) if checkpoint and (checkpoint / STATE_FILE).is_file() else None,
        device=config.device,
        seed=derive_seed(config.seed, "learner", role),
        checkpoints=str((start.run_directory / "checkpoints").resolve()),
    )


def check_context_lengths(config: Config, problems: list[Problem], tokenizers: Mapping[str, Any]) -> None:
    """Raises ValueError where a problem's prompt and completions can't fit the engine's max_model_len."""
    for role in ROLES:
        settings, style = config.policy(role), format_for(tokenizers[role], config.game.test_format)
        room = settings.engine.max_model_len
        for problem in problems:
            if role == "generator":
                tokens = style.generator_prompt(problem)
                for stage in range(2, len(REASONING_STAGES) + 1):
                    tokens = style.next_stage([*tokens, *[0] * settings.max_tokens], stage)
            else:
                tokens = style.discriminator_prompt(problem, config.game.max_tests)
            if len(tokens) + settings.max_tokens > room:
                raise ValueError(
                    f"problem {problem.id}: prompt and completions may take {len(tokens) + settings.max_tokens} "
                    f"tokens, but {role}.engine.max_model_len is {room}: raise it or lower {role}.max_tokens"
                )
