"""Demonstrations for a Spec: five-stage reasoning for the generator, test suites for the discriminator.

Texts are terse, since the model has a fraction of a million parameters. Markers between stages belong to the prompt
format, not here.
"""

from random import Random

from lab.grammar import COLLECTIONS, Kind, Spec, code
from lab.misconceptions import misconceive, misread
from lab.sampling import (
    Input,
    aimed_inputs,
    bland_input,
    edge_input,
    has_large_numbers,
    run_reference,
)


def clean_trace(spec: Spec) -> tuple[str, ...]:
    """Returns the five stages of a correct demonstration, each ending with a newline; stage 5 is `code(spec)`."""
    return tuple(stage_text(spec, stage) for stage in range(1, 6))


def flawed_trace(spec: Spec, rng: Random, probability: float, misreading: float = 0.0) -> tuple[str, ...]:
    """Returns the five stages of a demonstration with misconceptions and misread numbers: a mistake that is made at one
    stage persists at all later stages."""
    spec = misread(spec, rng, misreading)
    texts = []
    for stage in range(1, 6):
        spec = misconceive(spec, stage, rng, probability)
        texts.append(stage_text(spec, stage))
    return tuple(texts)


def stage_text(spec: Spec, stage: int) -> str:
    """Returns the text of `stage` (1-5) of a demonstration that takes `spec` for the problem."""
    if stage == 5:
        return code(spec)
    branch = spec.kind is Kind.INT_TO_INT
    writers = _BRANCH_WRITERS if branch else _LOOP_WRITERS
    return writers[stage - 1](spec)


def _branch_informal(spec: Spec) -> str:
    assert spec.transform and spec.otherwise
    then, otherwise = spec.transform_phrase(spec.transform), spec.transform_phrase(spec.otherwise)
    post = f"; finally {spec.post_phrase}" if spec.post else ""
    return f"check if n is {' and '.join(spec.filter_phrases)}; then n {then}, else n {otherwise}{post}\n"


def _branch_structured(spec: Spec) -> str:
    steps = [
        f"if {' and '.join(spec.conditions)}",
        f"then {spec.transformed(spec.transform)}",
        f"else {spec.transformed(spec.otherwise)}",
    ]
    return _numbered(steps + _post_step(spec))


def _branch_pseudocode(spec: Spec) -> str:
    then, otherwise = spec.transformed(spec.transform), spec.transformed(spec.otherwise)
    return f"r = {then} if {' and '.join(spec.conditions)} else {otherwise}; return {spec.returned}\n"


def _branch_constraints(spec: Spec) -> str:
    return f"n int; {' , '.join(spec.conditions)}; returns int\n"


def _loop_informal(spec: Spec) -> str:
    parts = [f"go through {spec.kind.parameter}"]
    if spec.filters:
        parts.append(f"keep {' and '.join(spec.filter_phrases)}")
    if spec.transform:
        parts.append(f"take each {spec.transform_phrase(spec.transform)}")
    parts.append(COLLECTIONS[spec.collect].step)
    if spec.post:
        parts.append(f"then {spec.post_phrase}")
    return ", ".join(parts) + "\n"


def _loop_structured(spec: Spec) -> str:
    steps = [f"keep {condition}" for condition in spec.conditions]
    if spec.transform:
        steps.append(f"map {spec.transformed(spec.transform)}")
    return _numbered([*steps, spec.collect, *_post_step(spec)])


def _loop_pseudocode(spec: Spec) -> str:
    condition = f"if {' and '.join(spec.conditions)}: " if spec.conditions else ""
    work = f"{condition}{spec.collect} {spec.transformed(spec.transform)}"
    return f"for {spec.kind.element} in {spec.kind.parameter}: {work}; return {spec.returned}\n"


def _loop_constraints(spec: Spec) -> str:
    conditions = f"{' , '.join(spec.conditions)}; " if spec.conditions else ""
    return f"{spec.kind.parameter} may be empty; {conditions}returns {spec.kind.output_type}\n"


_BRANCH_WRITERS = (_branch_informal, _branch_structured, _branch_pseudocode, _branch_constraints)
_LOOP_WRITERS = (_loop_informal, _loop_structured, _loop_pseudocode, _loop_constraints)


def _post_step(spec: Spec) -> list[str]:
    return [f"post {spec.returned}"] if spec.post else []


def _numbered(steps: list[str]) -> str:
    return "".join(f"{number}. {step}\n" for number, step in enumerate(steps, start=1))


def discriminator_suite(
    spec: Spec, rng: Random, *, tests: int, weak: float, invalid: float, computed: bool = False
) -> str:
    """Returns `tests` tests, one per line: calls `f(...)`, whose expected values the reference solution will supply, or
    asserts if `computed`.

    Args:
        weak: share of suites with bland inputs far from every boundary: well-formed, but they hardly ever fail a wrong
            program.
        invalid: share of suites that are not weak and have one spoilt test: of the wrong type, or a copy of the test
            before it.
    """
    draw = rng.random()
    if draw < weak:
        inputs = [weak_input(spec, rng) for _ in range(tests)]
    elif has_large_numbers(spec):
        inputs = aimed_inputs(spec, rng, tests)
    else:
        inputs = [(edge_input if rng.random() < 0.5 else bland_input)(spec, rng) for _ in range(tests)]
    outputs = run_reference(spec, inputs) if computed else []
    if weak <= draw < weak + invalid:
        _spoil_one(spec, inputs, rng)
    if computed:
        return "".join(f"assert f({i!r}) == {o!r}\n" for i, o in zip(inputs, outputs, strict=True))
    return "".join(f"f({argument!r})\n" for argument in inputs)


def weak_input(spec: Spec, rng: Random) -> Input:
    """Returns an input on which hardly any mistake shows."""
    if spec.kind.takes_list:
        return [rng.randint(7, 9) for _ in range(rng.randint(0, 1))]
    return rng.choice(["", "t", "o"]) if spec.kind.takes_str else rng.randint(8, 9)


def _spoil_one(spec: Spec, inputs: list[Input], rng: Random) -> None:
    position = rng.randrange(len(inputs))
    wrong_type: Input = 3 if spec.kind.takes_str else "x"
    inputs[position] = rng.choice([inputs[position - 1], wrong_type])
