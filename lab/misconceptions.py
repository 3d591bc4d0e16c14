"""Systematic mistakes: misconceptions that arise at one reasoning stage and persist through all later stages.

They make the demonstrations of the supervised warm-up deliberately flawed. A model that has merely trained too little
makes random errors, which leave reinforcement learning little to correct; a model trained on these demonstrations has
habits to unlearn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from lab.grammar import BOUNDARY_FILTERS, NUMBER_FILTERS, NUMBER_TRANSFORMS, Op, Spec, Template


@dataclass(frozen=True, kw_only=True, slots=True)
class Misconception:
    """A wrong belief about a problem."""

    stage: int
    """The stage (1-5) at which the misconception arises."""
    summary: str
    distort: Callable[[Spec], Spec]
    """Returns the Spec as it is misunderstood; the same Spec if the misconception does not apply."""


def _mistake_filter(right: str, wrong: str) -> Callable[[Spec], Spec]:
    def distort(spec: Spec) -> Spec:
        wrong_op = {op: _renamed(op, wrong, NUMBER_FILTERS) for op in spec.filters if op.name == right}
        return replace(spec, filters=tuple(wrong_op.get(op, op) for op in spec.filters))

    return distort


def _mistake_transform(right: str, wrong: str) -> Callable[[Spec], Spec]:
    def distort(spec: Spec) -> Spec:
        if spec.transform is None or spec.transform.name != right:
            return spec
        return replace(spec, transform=_renamed(spec.transform, wrong, NUMBER_TRANSFORMS))

    return distort


def _mistake_collection(right: str, wrong: str) -> Callable[[Spec], Spec]:
    return lambda spec: replace(spec, collect=wrong) if spec.collect == right else spec


def _forget_bound(spec: Spec) -> Spec:
    forgotten = spec.post is not None and spec.post.name in ("mod", "floor", "cap")
    return replace(spec, post=None) if forgotten else spec


def _renamed(op: Op, name: str, table: Mapping[str, Template]) -> Op:
    return Op(name, op.constant if table[name].takes_constant else 0)


MISCONCEPTIONS = (
    Misconception(stage=1, summary="forgets the final modulo, floor or cap", distort=_forget_bound),
    Misconception(
        stage=1, summary="takes the first for the last", distort=_mistake_collection("last", "first")
    ),
    Misconception(stage=2, summary="reads 'at least' as 'above'", distort=_mistake_filter("ge", "gt")),
    Misconception(stage=2, summary="adds instead of subtracting", distort=_mistake_transform("sub", "add")),
    Misconception(stage=3, summary="reads 'at most' as 'below'", distort=_mistake_filter("le", "lt")),
    Misconception(stage=3, summary="forgets to reverse", distort=_mistake_collection("rev", "list")),
    Misconception(stage=4, summary="takes any divisor for 2", distort=_mistake_filter("div", "even")),
    Misconception(stage=5, summary="doubles instead of squaring", distort=_mistake_transform("sq", "dbl")),
    Misconception(stage=5, summary="forgets to sort", distort=_mistake_collection("sort", "list")),
    Misconception(
        stage=5, summary="drops the sign instead of negating", distort=_mistake_transform("neg", "abs")
    ),
)


def misread(spec: Spec, rng: Random, probability: float) -> Spec:
    """Returns the Spec with misread constants: the constant of each boundary filter is replaced by a neighbour (1 by 2,
    2 by 1, 3 by 4 ...) with `probability`. Each such mistake concerns few problems, and only inputs near the constant
    show it."""

    def read(op: Op) -> Op:
        mistaken = op.name in BOUNDARY_FILTERS and rng.random() < probability
        return replace(op, constant=op.constant + (1 if op.constant % 2 else -1)) if mistaken else op

    return replace(spec, filters=tuple(read(op) for op in spec.filters)) if probability else spec


def misconceive(spec: Spec, stage: int, rng: Random, probability: float) -> Spec:
    """Returns the Spec after `stage`: each of the stage's misconceptions that applies is made with `probability`."""
    for misconception in MISCONCEPTIONS:
        if misconception.stage != stage:
            continue
        distorted = misconception.distort(spec)
        if distorted != spec and rng.random() < probability:
            spec = distorted
    return spec
