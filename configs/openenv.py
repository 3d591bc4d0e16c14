"""The options of sparring openenv."""

from typing import Any, ClassVar

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from configs.options import OPTIONS, Options
from configs.sections import ProblemFormat
from sparring.core.interfaces import SandboxKind
from sparring.games import GameRules
from sparring.games.programs.unit_tests import UnitTestsRules


class OpenEnvOptions(Options):
    """Serves a game of programs as an OpenEnv environment: another trainer's model writes the program, and gets our
    reward."""

    dataset: str
    """Data set: a file, "owner/name" on the hub, or a directory (formats q and grids)."""
    format: ProblemFormat = "problems"
    """Format of the data set; see sparring/problems/formats."""
    split: str | None = None
    """Split of the data set, if it has splits (on the hub; mbpp, q)."""
    fields: dict[str, str] = {}
    """Mapping from our names to the data set's columns, as JSON or as key=value, repeated; with format fields only."""
    game: GameRules = UnitTestsRules()
    """Game in which one player writes a program, with its settings. Default: unit_tests."""
    sandbox: SandboxKind = "auto"
    slots: int = Field(2, ge=1, le=31)
    """Number of programs that are judged at once."""
    port: int = Field(8009, ge=0, lt=1 << 16)
    """Port, on this machine only; 0: any free port."""

    model_config: ClassVar[SettingsConfigDict] = {**OPTIONS, "cli_prog_name": "python -m sparring openenv"}

    @model_validator(mode="before")
    @classmethod
    def _game_is_of_programs(cls, given: Any) -> Any:
        """Takes unit_tests if keys of a game are given without its kind."""
        game = given.get("game") if isinstance(given, dict) else None
        if not isinstance(game, dict) or "kind" in game:
            return given
        return {**given, "game": {"kind": "unit_tests", **game}}
