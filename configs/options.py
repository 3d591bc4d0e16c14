"""Base of the options of all commands except driver.py: they are read from the command line alone, and errors have one
line."""

import argparse
import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    CliApp,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from configs.command_line import CommandLine
from configs.layers import other_kinds, place
from configs.sections import ProblemFormat
from sparring.core.errors import SparringError
from sparring.core.interfaces import SandboxKind
from sparring.core.settings import at_home
from sparring.core.stages import REASONING_STAGES
from sparring.core.verdict import Limits

_CPU_S, _WALL_PER_CPU = 5.0, 4
OPTIONS = SettingsConfigDict(
    cli_kebab_case=True,
    cli_implicit_flags=True,
    cli_hide_none_type=True,
    use_attribute_docstrings=True,
    populate_by_name=True,
)


class Options(BaseSettings):
    model_config: ClassVar[SettingsConfigDict] = OPTIONS

    @field_validator("*")
    @classmethod
    def _at_home(cls, value: Any) -> Any:
        return at_home(value)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, **_: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leaves the environment out: variables such as SEED and FORMAT may be there for other programs."""
        return (init_settings,)

    @classmethod
    def read(cls, arguments: Sequence[str]) -> Self:
        """Reads the options. Raises SparringError; exits on --help."""
        source = CommandLine(cls)
        source.root_parser.error = lambda message: _refuse(message + similar(source.root_parser, message))
        try:
            return CliApp.run(cls, cli_args=list(arguments), cli_settings_source=source)
        except ValidationError as error:
            _refuse("; ".join(_explain(fault, cls) for fault in error.errors()))
        except SettingsError as error:
            _refuse(str(error))

    def refuse_changed(self, names: Sequence[str], where: str) -> None:
        """Raises ValueError if an option among `names` is not at its default. For validators."""
        for name in names:
            if getattr(self, name) != (default := type(self).model_fields[name].default):
                option = f"no-{name}" if default is True else name
                raise ValueError(f"--{option.replace('_', '-')} has no effect {where}")


COUNTS = tuple(map(str, range(len(REASONING_STAGES))))
"""Number of stages before the program: none, some or all."""


def _known_stages(stages: str) -> str:
    if stages not in ("all", "none", *COUNTS):
        raise ValueError(f"give all, none, or a number from 0 to {COUNTS[-1]}")
    return stages


Stages = Annotated[str, AfterValidator(_known_stages)]


class ModelOptions(Options):
    """Options of commands in which a model writes programs and the sandbox judges them."""

    format: ProblemFormat = "problems"
    """Format of the data set; see sparring/problems/formats."""
    split: str | None = None
    """Split of the data set, if it has splits (on the hub; mbpp, q)."""
    fields: dict[str, str] = {}
    """Mapping from our names to the data set's columns, as JSON or as key=value, repeated; with format fields only."""
    exact_outputs: bool = False
    """Compare what a whole program prints line by line, not as the data set's own tester does (code_contests, apps, taco,
    livecodebench: docs/data_sets.md)."""
    problems: int | None = Field(None, ge=1)
    """Number of problems, from the beginning of the data set."""
    answer_format: Literal["direct", "reasoning"] | None = None
    """Form of an answer in one message: the program alone, or reasoning and then the program. Default: that of the checkpoint's run, or direct."""
    engine: Literal["vllm", "transformers"] = "vllm"
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Default: bfloat16 if the GPU or the processor computes in it, else float16 on a GPU from compute capability 7, else float32. For toy models a processor always uses
    float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda if torch finds a GPU, else cpu."""
    max_tokens: int | None = Field(None, ge=1)
    """Maximum length of a completion, in tokens per turn. Default: that of the checkpoint's run, or 512."""
    max_model_len: int | None = Field(None, ge=32)
    """Maximum length of a sequence (prompts and completions of all turns), in tokens. Default: as much as the longest problem may need."""
    sandbox: SandboxKind = "auto"
    cpu_s: float | None = Field(None, gt=0)
    """CPU seconds per test of problems that state no limits; wall-clock seconds are four times as many. Default: 5, so
    that the load of the machine does not decide the result; for suites the limit in the game's config."""
    seed: int = 1

    @property
    def limits(self) -> Limits:
        """Limits of problems that state none."""
        cpu_s = self.cpu_s or _CPU_S
        return Limits(cpu_s=cpu_s, wall_s=_WALL_PER_CPU * cpu_s)


def _explain(fault: Any, options: type[BaseModel]) -> str:
    """Returns what is wrong with one option, in one line."""
    message = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return message
    key, _ = place([part for part in fault["loc"] if not isinstance(part, int)], options)
    option = "--" + key.replace("_", "-")
    if fault["type"] == "extra_forbidden":
        return f"{option}: {other_kinds(fault['loc'], options)}see --help for the options there are"
    return f"{option}: {message}" + ("" if fault["type"] == "missing" else f" (got {fault['input']!r})")


def similar(parser: argparse.ArgumentParser, message: str) -> str:
    """Returns "; did you mean ...?" with the option that is most like an unknown one in argparse's message, or ""."""
    known = list(parser._option_string_actions)
    unknown = [word.partition("=")[0] for word in message.split() if word.startswith("--")]
    found = [close[0] for word in unknown if (close := difflib.get_close_matches(word, known, 1))]
    is_of_options = message.startswith("unrecognized arguments")
    return f"; did you mean {', '.join(found)}?" if found and is_of_options else ""


def _refuse(message: str) -> NoReturn:
    raise SparringError(message)


def check_writable(file: Path, option: str) -> None:
    """Raises ValueError if a result could not be written to the file."""
    if not file.resolve().parent.is_dir():
        raise ValueError(f"{option} {file}: its directory does not exist; make it first")
    if file.is_dir():
        raise ValueError(f"{option} {file}: is a directory; give a file in it")
    if not os.access(file.resolve().parent, os.W_OK):
        raise ValueError(f"{option} {file}: its directory is not writable; give another one")
