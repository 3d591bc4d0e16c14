"""Finds and checks models that are used outside of a run (evaluation, solving, serving), and determines how they are
prompted."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ValidationError

from actors.settings import EngineSettings
from configs.load import read_recipe, recipe_path
from configs.schema import Config
from learners.checkpoints import ADAPTER, base_of
from sparring.core.errors import SparringError
from sparring.core.interfaces import PromptFormat
from sparring.core.play import GENERATOR
from sparring.core.problem import Problem
from sparring.core.project_files import is_example, located
from sparring.evaluation.writing import PolicyWriter, ProgramGame, SuiteGame
from sparring.games import USUAL, GameRules
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from sparring.games.programs.game import SolverGame, SolverRules
from sparring.games.programs.unit_tests import UnitTestsRules
from sparring.games.prompts import TaggedFormat, format_for
from sparring.games.rules import Rules
from sparring.runtime.architectures import unknown_to_vllm
from sparring.runtime.start import end_token_ids, find_model, load_tokenizer
from sparring.tracking.model_card import describe_toy, read_toy
from sparring.tracking.rows import read_json
from sparring.tracking.run_record import CATEGORIES
from sparring.tracking.runs import find_run, of_another_version, read_section

_MAX_TOKENS = 512
_LEAST_ROOM = 32


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that has been checked, but is not loaded yet."""

    path: str
    """Directory or hub id."""
    tokenizer: Any
    context: int | None
    """Number of tokens of the longest sequence that the model can take; None if its config does not say."""
    end_token_ids: tuple[int, ...] = ()
    """End tokens that its generation config names."""
    run: Mapping[str, Any]
    """Config of the run that the model is a checkpoint of; empty for other models."""

    def style(self) -> PromptFormat:
        return format_for(self.tokenizer, self.end_token_ids)

    @property
    def game(self) -> Mapping[str, Any]:
        """Returns the game section of its run's config; empty if it has no run."""
        return self.run.get("game") or {}

    @property
    def config(self) -> Config | None:
        """Returns the parsed config of its run, or None if it has no run. Raises SparringError as `rules` does."""
        try:
            return Config.model_validate(self.run) if self.run else None
        except ValidationError as error:
            raise of_another_version(_run_directory(self.path), str(error.errors()[0]["msg"])) from None

    @property
    def rules(self) -> Rules | None:
        """Returns the parsed game config of the model's run, or None if the model is not a checkpoint of a run. Raises
        SparringError if another version of this software made the run and its config cannot be read."""
        return read_section(GameRules, self.run, "game", _run_directory(self.path)) if self.game else None

    def evaluated(self, held_out: Sequence[Problem]) -> list[Problem]:
        """Returns those of its run's held-out problems that the run evaluates: not those that it left out, since they are too
        long or their references fail, nor those beyond evaluation.problems. Returns all of them if the run evaluates
        nothing, or there is no run."""
        known = read_json(_run_directory(self.path) / CATEGORIES).get("held_out") if self.run else None
        return [problem for problem in held_out if problem.id in known] if known else list(held_out)

    @property
    def knows_stages(self) -> bool:
        """Returns whether its run trained it on the reasoning stages. Without a run: whether it has the stage
        markers."""
        if self.run:
            return self.rules is not None and "stages" in self.rules.uses
        return self.is_toy

    @property
    def usual_stages(self) -> str:
        """Returns the stages in which the model writes programs if no option names them (see program_game): those of
        its run, or "none" if its run had no stages. If the model is of no run: "all"."""
        rules = self.rules
        if isinstance(rules, MultistageRules):
            return "all" if rules.stages is None else str(rules.stages)
        return "all" if not self.run or self.knows_stages else "none"

    def note(self, problems: Sequence[Problem] = ()) -> str:
        """Returns a text that says what a toy model is, names a problem that it can solve, and warns of problems that ask
        for another function than it writes. Empty for other models."""
        if not self.is_toy:
            return ""
        description, function = describe_toy(self._toy), self._toy.get("function", "f")
        other = next((p.entry_point for p in problems if p.is_function and p.entry_point != function), None)
        return (
            f"{description} Its function is always called {function}, not {other}." if other else description
        )

    @property
    def max_tokens(self) -> int:
        """Returns the maximum length of a turn in its run, in tokens, or a default."""
        return (self._settings or self._toy).get("max_tokens", _MAX_TOKENS)

    @property
    def is_toy(self) -> bool:
        """Whether it is a toy model of the project: only these have marker tokens."""
        return isinstance(self.style(), TaggedFormat)

    @property
    def _settings(self) -> Mapping[str, Any]:
        """Returns the policy's section of its run's config; empty if it has no run."""
        return self.run.get(Path(self.path).name) or {}

    @property
    def _toy(self) -> Mapping[str, Any]:
        """Returns what a toy model's card, or that of the model that its run started from, says of it; empty for other
        models."""
        if not self.is_toy:
            return {}
        start = self._settings.get("model")
        return read_toy(Path(self.path)) or (read_toy(located(start)) if start else {})


def open_model(name: str, key: str) -> Model:
    """Finds and checks a model. Raises SparringError.

    Args:
        name: one model, as find_policy returns it
        key: the option that names the model, for errors
    """
    from transformers import AutoConfig

    path = find_model(name, key)
    tokenizer = load_tokenizer(path, key)
    context = getattr(AutoConfig.from_pretrained(base_of(path) or path), "max_position_embeddings", None)
    return Model(
        path=path,
        tokenizer=tokenizer,
        context=context,
        end_token_ids=end_token_ids(path),
        run=_run_of(Path(path)),
    )


def _is_model(directory: Path) -> bool:
    """Returns whether a directory holds a model or an adapter."""
    return any((directory / name).is_file() for name in ("config.json", ADAPTER))


def _run_of(checkpoint: Path) -> dict[str, Any]:
    """Returns the config in RUN/config.yaml for RUN/checkpoints/NAME/ROLE, or, for a model in sparring/examples, that of the
    recipe that it is for; empty if there is neither. Raises ConfigError if the config cannot be read."""
    if is_example(checkpoint) and (toy := read_toy(checkpoint)):
        return Config.model_validate(read_recipe(*recipe_path(toy["recipe"]))).model_dump(mode="json")
    file = _run_directory(checkpoint) / "config.yaml"
    if checkpoint.parent.parent.name != "checkpoints" or not file.is_file():
        return {}
    return read_recipe(file)


def _run_directory(checkpoint: str | Path) -> Path:
    """Returns RUN for RUN/checkpoints/NAME/ROLE."""
    return Path(checkpoint).parent.parent.parent


def find_policies(name: str | None, output: Path) -> tuple[str, str | None]:
    """Returns (generator, discriminator or None).

    Args:
        name: a run, whose best checkpoint is taken (None: the latest run in `output`), a checkpoint (or another directory
            with a directory for each policy), a directory in Hugging Face format, or a hub id

    Raises SparringError if there is no run, or the run has no checkpoint.
    """
    run = located(name) if name is not None else find_run(None, output)
    if (run / "metrics.jsonl").is_file():
        best = run / "checkpoints" / "best"
        steps = sorted((run / "checkpoints").glob("step_*"))
        if not best.is_dir() and not steps:
            raise SparringError(f"{run}: this run has no checkpoint yet; give another model")
        checkpoint = best if best.is_dir() else steps[-1]
    else:
        checkpoint = run
    roles = {path.name: str(path) for path in sorted(checkpoint.glob("*")) if _is_model(path)}
    if not roles:  # one model
        return name or str(run), None
    if "generator" not in roles:
        raise SparringError(
            f"{checkpoint}: a checkpoint of {', '.join(roles)}, none of which writes programs"
        )
    return roles["generator"], roles.get("discriminator")


def find_policy(name: str, role: str, key: str) -> str:
    """Returns the policy of the given role (generator or discriminator) from a name as find_policies takes it; if the
    name is that of a single model, that model. key: the option that gave the name, for errors. Raises SparringError.
    """
    generator, discriminator = find_policies(name, Path())
    if role == GENERATOR or generator == name:
        return generator
    if discriminator is None:
        raise SparringError(f"{key} {name}: comes with no discriminator")
    return discriminator


def check_writes_programs(named: str, model: Model) -> None:
    """Raises SparringError for a checkpoint of a game that writes no programs. named: option and value, for the
    error."""
    rules = model.rules
    if rules is not None and not rules.uses & {"stages", "samples"}:
        raise SparringError(
            f"{named}: a checkpoint of game {rules.kind}, which writes no programs; give one of a game that does"
        )


def suite_game(named: str, model: Model, changes: Mapping[str, Any] = MappingProxyType({})) -> SuiteGame:
    """Returns the game in which a discriminator writes suites: that of its run's config, or the usual one. Raises
    SparringError for a checkpoint of another game.

    Args:
        named: option and value, for the error
        changes: settings to change in the game's config
    """
    game = (model.rules or USUAL).model_copy(update=changes).game()
    if not isinstance(game, SuiteGame):
        raise SparringError(
            f"{named}: its run was no game with test suites; give a discriminator of game multistage"
        )
    return game


def program_game(
    model: Model,
    stages: str,
    answer_format: Literal["direct", "reasoning"] | None,
    problems: Sequence[Problem],
    attempts: int = 1,
) -> ProgramGame:
    """Returns the game in which the model writes a program. A model that was trained to write programs in one message
    is prompted as in its training, if its game is for such problems and no answer_format is given.

    Args:
        stages: "none" (one message), "all", or a number: that many reasoning stages, then the program
        attempts: number of attempts, one after another
    """
    if stages == "none":
        rules = model.rules
        if answer_format is None and isinstance(rules, SolverRules) and not any(map(rules.refuse, problems)):
            return SolverGame(rules.model_copy(update={"attempts_per_episode": attempts}))
        own = UnitTestsRules(answer_format=answer_format or "direct", attempts_per_episode=attempts)
        return SolverGame(own)
    count = None if stages == "all" else int(stages)
    return MultistageGame(MultistageRules(stages=count, attempts_per_episode=attempts))


def room_for(
    problems: Sequence[Problem],
    longest: Callable[[Problem], int],
    model: Model,
    max_tokens: int,
    max_model_len: int | None,
) -> int:
    """Returns the number of tokens of the longest sequence that may occur. Raises SparringError if some problems do not
    fit."""
    needs = {problem.id: longest(problem) for problem in problems}
    allowed = {"--max-model-len": max_model_len, "the model's context": model.context}
    key, limit = min(((k, n) for k, n in allowed.items() if n), key=lambda pair: pair[1], default=("", 0))
    too_long = [i for i, tokens in needs.items() if limit and tokens > limit]
    if too_long:
        worst = max(too_long, key=lambda i: needs[i])
        raise SparringError(
            f"{len(too_long)} of {len(problems)} problems do not fit: prompts and completions of {worst} may take "
            f"{needs[worst]} tokens, but {key} is {limit}: "
            f"{'raise it or ' if key.startswith('--') else ''}lower --max-tokens ({max_tokens})"
        )
    return max(_LEAST_ROOM, *needs.values())


@asynccontextmanager
async def loaded(
    model: Model, engine: EngineSettings, device: str, style: PromptFormat, max_tokens: int, seed: int
) -> AsyncIterator[PolicyWriter]:
    """Loads the model, yields a writer for it, and closes its engine. Raises SparringError if engine or device are
    missing."""
    import torch

    from sparring.runtime.build import build_policy  # imports all of torch; --policy reference does not

    if device == "cuda" and not torch.cuda.is_available():
        raise SparringError("--device cuda: torch finds no GPU; leave it out")
    if engine.kind == "vllm" and (architecture := unknown_to_vllm(model.path)):
        raise SparringError(
            f"--engine vllm: vLLM cannot load {model.path}, its architecture is {architecture}; give the other engine"
        )
    try:
        policy = build_policy(engine, model.path, device)
    except ModuleNotFoundError as error:
        raise SparringError(
            f"--engine {engine.kind}: {error}; install it, or give the other engine"
        ) from error
    try:
        yield PolicyWriter(policy=policy, format=style, max_tokens=max_tokens, seed=seed)
    finally:
        await policy.close()
