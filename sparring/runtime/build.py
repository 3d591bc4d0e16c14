"""Builds the parts that the Ray runtime and the one-process runtime have in common."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors.episodes import EpisodeRunner, PolicyClient
from actors.loading import LocalPolicy, RolloutPolicy
from actors.settings import ADAPTERS, EngineSettings
from configs.schema import Config
from learners.batching import Credit
from learners.checkpoints import base_of
from learners.train_spec import LearnerSpec
from sparring.core.errors import SparringError
from sparring.core.interfaces import Policy, Sandbox
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.games.prompts import format_for
from sparring.problems.loader import ProblemFileError
from sparring.runtime.parts import Start
from sparring.runtime.start import end_token_ids, open_tokenizer
from sparring.tracking.progress import say

_PROBE = "Return the sum of all numbers in a list.\n\ndef total(numbers: list[int]) -> int:\n    return sum(numbers)\n"


@contextmanager
def whole_model(model: str, dtype: str | None) -> Iterator[str]:
    """Yields a path at which an engine that is started in this context finds the whole model. If the model is a LoRA
    adapter, it is merged into its base model, in a directory that is deleted afterwards. Raises CheckpointError if the
    base model is missing."""
    if base_of(model) is None:
        yield model
        return
    from learners.adapters import merged_folder

    with merged_folder(Path(model), dtype or "float32") as place:
        yield str(place)


def build_policy(engine: EngineSettings, model: str, device: str) -> Policy:
    """Starts an inference engine for a model. The engines are imported here, so that only a process that needs an
    engine loads it. Raises EngineFailure or CheckpointError."""
    with whole_model(model, engine.dtype) as place:
        if engine.kind == "vllm":
            from actors.vllm_policy import VllmPolicy

            return VllmPolicy(place, engine, device)
        from actors.transformers_policy import TransformersPolicy

        return TransformersPolicy(place, engine, device)


def build_engine(config: Config, models: Mapping[str, str], roles: Sequence[str]) -> dict[str, LocalPolicy]:
    """Starts one engine and returns the policies that it serves: one policy, or several adapters of one model. Raises
    EngineFailure."""
    engine, model = config.policy(roles[0]).engine, models[roles[0]]
    if config.policy(roles[0]).publishes_adapter and engine.kind == "vllm":
        from actors.vllm_policy import adapter_policies

        ranks = {role: lora.rank for role in roles if (lora := config.policy(role).learner.lora)}
        policies: Mapping[str, Policy] = adapter_policies(
            model, engine, config.device, ranks, config.rollout.max_policy_lag + ADAPTERS
        )
    else:
        policies = {roles[0]: build_policy(engine, model, config.device)}
    return {role: LocalPolicy(policies[role], config.policy(role).engine.tolerance) for role in roles}


def build_runner(
    config: Config,
    models: Mapping[str, str],
    client: Callable[[], Sandbox],
    apart: Mapping[str, Sequence[RolloutPolicy]] | None = None,
    index: int = 0,
) -> EpisodeRunner:
    """Builds the runner that plays episodes in a rollout actor, or in the one process of a local run. Raises EngineFailure.

    Args:
        client: makes the sandbox client of the process
        apart: policies by role whose engines are in separate actors, one policy per engine
        index: number of this runner among all runners
    """
    engines: dict[str, Sequence[RolloutPolicy]] = dict(apart or {})
    for roles in config.engines():
        if config.policy(roles[0]).engine.count is None:
            engines |= {role: [policy] for role, policy in build_engine(config, models, roles).items()}
    speakers = {}
    for role in config.policies:
        settings = config.policy(role)
        tokenizer = open_tokenizer(models[role])
        speakers[role] = PolicyClient(
            engines=engines[role],
            format=format_for(tokenizer, end_token_ids(models[role])),
            decode=tokenizer.decode,
            max_tokens=settings.max_tokens,
        )
    game = config.game
    return EpisodeRunner(
        game.game(), client(), speakers, config.seats, config.seed, index, game.stage_numbers
    )


def credit_of(config: Config, role: str) -> Credit:
    """Returns the credit assignment of one policy. The setting credit.kind applies to the generator only: no other
    policy has stages, or turns that are credited separately."""
    kind = config.credit.kind if role == "generator" else "all"
    return Credit(
        config.policy(role).learner,
        config.game.kind,
        config.players_of(role),
        one_stage=config.staged and kind in ("stage", "tree"),
        by_turn=kind == "stage_gae",
    )


def learner_specs(config: Config, start: Start) -> dict[str, LearnerSpec]:
    """Returns the specification of each policy's learner, by role."""
    return {role: _learner_spec(config, role, start) for role in config.policies}


def _learner_spec(config: Config, role: str, start: Start) -> LearnerSpec:
    model = start.models[role]
    checkpoint = start.checkpoint / role if start.checkpoint is not None else None
    return LearnerSpec(
        settings=config.policy(role).learner,
        learning_rate=config.policy_learning_rate(role),
        model_path=str(checkpoint) if checkpoint is not None else model,
        reference_path=model,
        state_path=str(checkpoint) if start.state and checkpoint else None,
        device=config.device,
        seed=derive_seed(config.seed, "learner", role),
        from_checkpoint=checkpoint is not None,
        adapter=config.policy(role).publishes_adapter,
        engine_dtype=config.policy(role).engine.dtype,
        probe=tuple(open_tokenizer(model).encode(_PROBE, add_special_tokens=False)[:24]),
        checkpoints=str((start.run_directory / "checkpoints").resolve()),
    )


def ordered_ids(config: Config, problems: Sequence[Problem]) -> list[str]:
    """Returns the ids of the training problems, from the easiest to the hardest if curriculum.order is difficulty.

    Raises ProblemFileError if the problems are to be ordered and a difficulty is not a whole number.
    """
    if config.curriculum.order == "difficulty":
        unknown = next((p for p in problems if not isinstance(p.difficulty, int)), None)
        if unknown is not None:
            raise ProblemFileError(
                f"problem {unknown.id}: curriculum.order difficulty needs a whole number as its difficulty, not "
                f"{unknown.difficulty!r}"
            )
        problems = sorted(problems, key=lambda p: (p.difficulty, p.id))
    return [p.id for p in problems]


def fitting(
    config: Config, train: Sequence[Problem], held_out: Sequence[Problem], tokenizers: Mapping[str, Any]
) -> tuple[list[Problem], list[Problem]]:
    """Returns the (training, held-out) problems whose prompt and completions fit into the engines' max_model_len.

    Raises SparringError if a problem does not fit, unless problems.too_long is leave_out and problems of each set are
    left.
    """
    game, too_long = config.game.game(), set[str]()
    way = getattr(config.problems, "too_long", None)
    for player, role in config.seats.items():
        settings, style = config.policy(role), format_for(tokenizers[role])
        room = settings.engine.max_model_len
        needs = {p.id: game.longest(p, player, style, settings.max_tokens) for p in (*train, *held_out)}
        if over := {i: tokens for i, tokens in needs.items() if tokens > room}:
            worst = max(over, key=lambda i: over[i])
            told = (
                f"problem {worst}: prompt and completions may take {over[worst]} tokens, but {role}.engine.max_model_len is "
                f"{room}, too few for {len(over)} of {len(needs)} problems"
            )
            if way != "leave_out" or any(
                over.keys() >= {p.id for p in part} for part in (train, held_out) if part
            ):
                instead = ", or leave such problems out (--problems.too-long leave_out)" * (way == "refuse")
                raise SparringError(f"{told}: raise it or lower {role}.max_tokens{instead}")
            say(f"{told}, which are left out")
            too_long |= over.keys()
    kept, aside = ([p for p in part if p.id not in too_long] for part in (train, held_out))
    return kept, aside
