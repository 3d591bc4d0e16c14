"""One model outside of a run: found, checked, and told how to write: for evaluation, solving and serving."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from actors.settings import EngineSettings
from configs.load import read_recipe, recipe_path
from configs.schema import Config
from configs.sections import EMBEDDED
from core.errors import SparringError
from core.interfaces import PromptFormat
from core.play import GENERATOR
from core.problem import Problem
from embedded.catalogue import describe_model, function_of
from embedded.settings import WarmStartSettings
from embedded.teaching import SHIPPED, WARM_STARTS
from evaluation.writing import ProgramGame, SuiteGame, Writer
from games import USUAL, GameRules, at_one_go, in_stages
from games.multistage.rules import MultistageRules
from games.programs.game import SolverGame, SolverRules
from games.prompts import TaggedFormat, format_for
from games.rules import Rules
from learners.checkpoints import ADAPTER, base_of
from runtime.architectures import unknown_to_vllm
from runtime.start import end_token_ids, find_model, load_tokenizer
from tracking.model_card import read_embedded
from tracking.runs import find_run, read_section

_MAX_TOKENS = 512
_LEAST_ROOM = 32


@dataclass(frozen=True, kw_only=True)
class Model:
    """Checked, not yet loaded."""

    path: str
    """Directory or hub id."""
    tokenizer: Any
    context: int | None
    """Tokens of the longest sequence that it can take, where its config says so."""
    end_token_ids: tuple[int, ...] = ()
    """Those that its generation config names."""
    run: Mapping[str, Any]
    """Config of the run that it is a checkpoint of; empty for others."""

    def style(self) -> PromptFormat:
        return format_for(self.tokenizer, self.end_token_ids)

    @property
    def game(self) -> Mapping[str, Any]:
        """Rules of its run; empty where there is none."""
        return self.run.get("game") or {}

    @property
    def taught(self) -> WarmStartSettings:
        """How the embedded models of its run were made. Raises SparringError as `rules` does."""
        if not self.run:
            return WarmStartSettings()
        return read_section(WarmStartSettings, self.run, "warm_start", _run_directory(self.path))

    @property
    def rules(self) -> Rules | None:
        """The same, read. Raises SparringError where the run is of another version of this software."""
        return read_section(GameRules, self.run, "game", _run_directory(self.path)) if self.game else None

    @property
    def knows_stages(self) -> bool:
        """Its run trained it on the stages; of no known run, it has the stage markers."""
        if self.run:
            return self.rules is not None and "stages" in self.rules.uses
        return self.is_embedded

    @property
    def usual_stages(self) -> str:
        """In which it writes programs if no option says it (see program_game): as in its run, else in all."""
        rules = self.rules
        if isinstance(rules, MultistageRules):
            return "all" if rules.stages is None else str(rules.stages)
        return "all" if not self.run or self.knows_stages else "none"

    def note(self, problems: Sequence[Problem] = ()) -> str:
        """Says what an embedded model is, names a problem that it can solve, and warns of problems that ask for another
        function than it writes. Empty for other models."""
        if not self.is_embedded:
            return ""
        known = self.run.get("warm_start") or self._exported
        kind = self.game.get("kind") or known.get("game")
        said, function = describe_model(kind, known.get("numbers", "small")), function_of(kind)
        other = next((p.entry_point for p in problems if p.is_function and p.entry_point != function), None)
        return f"{said} Its function is always called {function}, not {other}." if other else said

    @property
    def max_tokens(self) -> int:
        """The longest turn of its run, or what is usual."""
        return (self.run.get(Path(self.path).name) or self._exported).get("max_tokens", _MAX_TOKENS)

    @property
    def is_embedded(self) -> bool:
        """Whether it is one of the tiny models that the project makes for itself: only these have marker tokens."""
        return isinstance(self.style(), TaggedFormat)

    @property
    def _exported(self) -> Mapping[str, Any]:
        """What an embedded model's card says, if it has one; empty for others."""
        return read_embedded(Path(self.path)) if self.is_embedded else {}


def open_model(name: str, key: str) -> Model:
    """name: of one model, as find_policy returns it. key: the option that names it, for errors. Raises SparringError."""
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
    """Or an adapter for one."""
    return any((directory / name).is_file() for name in ("config.json", ADAPTER))


def _run_of(checkpoint: Path) -> dict[str, Any]:
    """What RUN/config.yaml says, for RUN/checkpoints/NAME/ROLE; of the shipped models the recipe that they are for;
    nothing where there is none. Raises ConfigError where it cannot be read."""
    if checkpoint.parent.parent == WARM_STARTS:
        recipe = json.loads((checkpoint.parent / "made_from.json").read_text())["recipe"]
        return Config.model_validate(read_recipe(*recipe_path(recipe))).model_dump(mode="json")
    file = _run_directory(checkpoint) / "config.yaml"
    if checkpoint.parent.parent.name != "checkpoints" or not file.is_file():
        return {}
    return read_recipe(file)


def _run_directory(checkpoint: str | Path) -> Path:
    """Of RUN/checkpoints/NAME/ROLE."""
    return Path(checkpoint).parent.parent.parent


def find_policies(name: str | None, output: Path) -> tuple[str, str | None]:
    """(generator, discriminator or None) of a run's best checkpoint (None: of the latest run in `output`), of a
    checkpoint, of the embedded models as they were before play, of a directory in Hugging Face format or of a hub id.

    Raises SparringError where there is no run, or none of its checkpoints.
    """
    run = Path(name).expanduser() if name is not None else find_run(None, output)
    if (run / "metrics.jsonl").is_file():
        best = run / "checkpoints" / "best"
        steps = sorted((run / "checkpoints").glob("step_*"))
        if not best.is_dir() and not steps:
            raise SparringError(f"{run}: this run has no checkpoint yet; give another model")
        checkpoint = best if best.is_dir() else steps[-1]
    else:
        checkpoint = SHIPPED if name == EMBEDDED else run
    roles = {path.name: str(path) for path in sorted(checkpoint.glob("*")) if _is_model(path)}
    if not roles:  # one model
        return name or str(run), None
    if "generator" not in roles:
        raise SparringError(
            f"{checkpoint}: a checkpoint of {', '.join(roles)}, none of which writes programs"
        )
    return roles["generator"], roles.get("discriminator")


def find_policy(name: str, role: str, key: str) -> str:
    """The generator or the discriminator (role) of what find_policies takes; of one model the model itself.

    key: the option that names it, for errors. Raises SparringError.
    """
    generator, discriminator = find_policies(name, Path())
    if role == GENERATOR or generator == name:
        return generator
    if discriminator is None:
        raise SparringError(f"{key} {name}: comes with no discriminator")
    return discriminator


def check_writes_programs(named: str, model: Model) -> None:
    """Raises SparringError for a checkpoint of a game that writes no programs. named: who asks for it, for the error."""
    rules = model.rules
    if rules is not None and not rules.uses & {"stages", "samples"}:
        raise SparringError(
            f"{named}: a checkpoint of game {rules.kind}, which writes no programs; give one of a game that does"
        )


def suite_game(named: str, model: Model, changes: Mapping[str, Any] = MappingProxyType({})) -> SuiteGame:
    """In which a discriminator writes suites: by its run's rules, or the usual ones. Raises SparringError for a checkpoint of
    another game. named: who asks for it, for the error. changes: of the rules."""
    game = (model.rules or USUAL).model_copy(update=changes).game()
    if not isinstance(game, SuiteGame):
        raise SparringError(f"{named}: its run was no game with test suites")
    return game


def program_game(
    model: Model,
    stages: str,
    answer_format: Literal["direct", "reasoning"] | None,
    problems: Sequence[Problem],
    attempts: int = 1,
) -> ProgramGame:
    """In which the model writes a program: in "none" of the stages, in "all", or in the first so many and the last. Who learnt to
    write it at one go is asked as it was then, where its game is for such problems and no form is given. attempts: one after another."""
    if stages == "none":
        rules = model.rules
        if answer_format is None and isinstance(rules, SolverRules) and not any(map(rules.refuse, problems)):
            return SolverGame(rules.model_copy(update={"attempts_per_episode": attempts}))
        return at_one_go(answer_format or "direct", attempts)
    return in_stages(None if stages == "all" else int(stages), attempts)


def room_for(
    problems: Sequence[Problem],
    longest: Callable[[Problem], int],
    model: Model,
    max_tokens: int,
    max_model_len: int | None,
) -> int:
    """Tokens of the longest sequence that may come up. Raises SparringError where some problems do not fit."""
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
) -> AsyncIterator[Writer]:
    """Raises SparringError where engine or device are not there."""
    import torch

    from runtime.build import build_policy  # with all of torch: --policy reference needs none

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
        yield Writer(policy=policy, format=style, max_tokens=max_tokens, seed=seed)
    finally:
        await policy.close()
