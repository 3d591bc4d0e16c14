"""The options of sparring solve, and which of them go together."""

import ast
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from configs.options import OPTIONS, ModelOptions, Stages, check_writable
from sparring.core.source import unchecked

_OF_BATCH = ("problems_file", "format", "split", "fields", "problems", "exact_outputs")
_OF_ONE = ("problem", "problem_file", "signature", "tests")


class SolveOptions(ModelOptions):
    """Solve problems with a trained generator. Examples:
    python -m sparring solve --problem "Return the sum of the above 613 numbers in xs." --signature "def f(xs: list) -> int:"
    python -m sparring solve --problem-file task.txt --tests "assert f([613, 614]) == 614; assert f([]) == 0" --execute-tests
    python -m sparring solve --batch --problems-file problems.json --execute-tests --output results.json
    """

    checkpoint: str | None = None
    """Generator: a run (its best checkpoint), a checkpoint of a run, a directory in Hugging Face format, a GGUF file, a
    hub id, or sparring/examples/toy: toy models before any training. Default: the best checkpoint of the latest run in
    --output-dir."""
    output_dir: Path = Path("output")
    """Directory that holds the runs."""
    problem: str | None = None
    """Text of the problem."""
    problem_file: Path | None = None
    """File that holds the text of the problem."""
    signature: str = ""
    """Signature of the function to write, such as "def add(a: int, b: int) -> int:". Default: the name that the tests call."""
    tests: str = ""
    """Python tests, separated by semicolons."""
    batch: bool = False
    """Solve all problems of a file."""
    problems_file: str | None = None
    """With --batch: the file, "owner/name" on the hub, or the directory (formats q and grids). In format problems a description
    is enough."""
    execute_tests: bool = False
    """Run the program on the problem's tests, in the sandbox."""
    attempts: int = Field(1, ge=1)
    """Maximum number of attempts, one after another, while a test fails. The next prompt names the tests that failed.
    Runs the tests."""
    best_of: int = Field(1, ge=1)
    """Number of programs that are written at first; the discriminator's tests choose one of them."""
    discriminator: str | None = None
    """Discriminator whose tests choose, with --best-of. Default: the checkpoint's own."""
    suites: int = Field(2, ge=1)
    """Number of suites that the discriminator writes per problem, with --best-of."""
    temperature: float = Field(0.7, ge=0)
    """Sampling temperature; 0: greedy."""
    top_p: float = Field(0.9, gt=0, le=1)
    """Nucleus sampling: tokens are drawn from the most likely ones that together have this probability."""
    top_k: int = Field(0, ge=0)
    """Number of most likely tokens from which a token is drawn; 0: all."""
    stages: Stages | None = None
    """all: every reasoning stage (sparring/core/stages.py); a number: that many of them, then the program; none: one
    message, one answer. Default: none for a generator whose run had no stages, all for others."""
    reasoning: bool = True
    """Show the stages before the program."""
    output: Path | None = None
    """JSON file to which the results are written."""
    engine: Literal["vllm", "transformers"] | None = None  # type: ignore[assignment]
    """Default: vllm for a batch, and transformers, which starts in seconds, for one problem."""

    model_config: ClassVar[SettingsConfigDict] = {**OPTIONS, "cli_prog_name": "python -m sparring solve"}

    @field_validator("tests")
    @classmethod
    def _tests_parse(cls, tests: str) -> str:
        try:
            tree = ast.parse(tests)
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"not valid Python ({error}); separate tests by semicolons") from None
        if tests and not tree.body:
            raise ValueError("holds no statement; give tests such as 'assert add(2, 3) == 5'")
        if (loose := unchecked(tree)) is not None:
            raise ValueError(f"{loose!r:.80} checks nothing; give an assert, such as 'assert f(1) == 2'")
        return tests

    @model_validator(mode="after")
    def _options_go_together(self) -> Self:
        if self.batch:
            self.refuse_changed((*_OF_ONE, "reasoning"), "with --batch")
            if self.problems_file is None:
                raise ValueError("--batch needs --problems-file")
            if self.format == "problems":
                self.refuse_changed(("split", "fields", "exact_outputs"), "with --format problems")
        else:
            self.refuse_changed(_OF_BATCH, "without --batch")
            if (self.problem is None) == (self.problem_file is None):
                raise ValueError("give --problem, --problem-file, or --batch --problems-file, one of them")
            if self.execute_tests and not self.tests:
                raise ValueError("--execute-tests needs --tests")
            if self.attempts > 1 and not self.tests:
                raise ValueError(
                    "--attempts needs --tests: only a failed test gives reason for another attempt"
                )
        if self.checkpoint is not None:
            self.refuse_changed(("output_dir",), "with --checkpoint")
        if not self.runs_programs:
            self.refuse_changed(("sandbox", "cpu_s"), "without --execute-tests, --attempts or --best-of")
        if self.best_of == 1:
            self.refuse_changed(("discriminator", "suites"), "without --best-of")
        elif self.temperature == 0:
            raise ValueError("--best-of needs a --temperature above 0: all greedy programs are the same")
        elif not self.batch and not (self.signature or self.tests):
            raise ValueError(
                "--best-of: the problem names no Python function for the discriminator's tests; give --signature, or "
                "--tests that call it"
            )
        if self.temperature == 0:
            self.refuse_changed(("top_p", "top_k"), "with --temperature 0")
        if self.answer_format and (self.stages or "none") != "none":
            self.refuse_changed(("answer_format",), "with --stages")
        if self.output is not None:
            check_writable(self.output, "--output")
        return self

    @property
    def runs_programs(self) -> bool:
        return self.execute_tests or self.attempts > 1 or self.best_of > 1

    @property
    def separate_tests(self) -> tuple[str, ...]:
        """The statements of --tests, one by one."""
        return tuple(ast.get_source_segment(self.tests, node) or "" for node in ast.parse(self.tests).body)
