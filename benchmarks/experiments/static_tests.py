"""How many single mistakes do static tests catch? For each toy training problem, each misconception that changes
its results is tested with the problem's own kind of baseline tests and with tests on random inputs.

    python -m benchmarks.experiments.static_tests
"""

from collections.abc import Callable
from random import Random

from benchmarks.report import arguments, publish
from lab.grammar import Spec
from lab.misconceptions import misconceive
from lab.problems import toy_specs
from lab.sampling import Input, bland_input, edge_input, run_reference

Tests = Callable[[Spec, Random], list[Input]]


def main() -> None:
    options = arguments(__doc__).parse_args()
    specs = toy_specs("train")[: 60 if options.quick else 300]
    figures: dict[str, float] = {}
    arms: dict[str, Tests] = {
        "three random and one edge (a problem's baseline tests)": lambda s, r: [
            *random_inputs(s, r, 3),
            edge_input(s, r),
        ]
    }
    for count in (1, 3, 6, 12):
        arms[f"{count} random"] = lambda s, r, n=count: random_inputs(s, r, n)
    for count in (3, 6, 12):
        arms[f"{count} random, none at a boundary"] = lambda s, r, n=count: [
            bland_input(s, r, at_boundaries=False) for _ in range(n)
        ]
    for name, tests in arms.items():
        caught = [hit for spec in specs for hit in catches(spec, tests, Random(f"{name} {spec}"))]
        figures[f"{name}: share caught"] = sum(caught) / len(caught)
        figures[f"{name}: mistakes"] = float(len(caught))
    publish(options.json, figures, {})


def random_inputs(spec: Spec, rng: Random, count: int) -> list[Input]:
    return [bland_input(spec, rng) for _ in range(count)]


def catches(spec: Spec, tests: Tests, rng: Random) -> list[bool]:
    """Returns for each stage whose misconceptions change some result whether the tests show it."""
    probes = [*(edge_input(spec, rng) for _ in range(30)), *random_inputs(spec, rng, 10)]
    wrong = [misconceive(spec, stage, rng, 1.0) for stage in range(1, 6)]
    wrong = [w for w in wrong if run_reference(w, probes) != run_reference(spec, probes)]
    drawn = [(w, tests(spec, rng)) for w in wrong]
    return [run_reference(w, inputs) != run_reference(spec, inputs) for w, inputs in drawn]


if __name__ == "__main__":
    main()
