"""Does R0's own setting learn, and in which stages: the discriminator earns (1 - pass rate) * validity and no more, a suite of one
valid test is wholly valid, and each stage is trained by itself, on its own tokens? Against the same where all stages' tokens learn at
once; the recipe, which pays for validity alone, too, is in experiments/sparring.py. Tests are inputs, not R0's asserts, for the
embedded models are not taught to compute outputs.

    python -m benchmarks.experiments.r0 --output output/experiments

Equal steps and samples, the same warm start, several seeds. Runs are local and to the bit (experiments/runs.py), several may run
beside each other; finished ones are not run again.
"""

import tempfile
from pathlib import Path

from benchmarks.experiments.sparring import compare
from benchmarks.report import arguments, write

_EARNS = ["--game.rewards.validity-weight", "0", "--game.rewards.validity-slots", "1"]
_STAGE = ["--credit.kind", "stage"]
_STRICT = [
    "--game.test-format",
    "strict",
    "--warm-start.discriminator-steps",
    "9600",
    "--warm-start.weak-suites",
    "0.8",
]
ARMS: dict[str, list[str]] = {
    "r0": [*_EARNS, *_STAGE],
    "r0_all_stages": _EARNS,
    "r0_strict": [*_EARNS, *_STAGE, *_STRICT],
    "r0_strict_all_stages": [*_EARNS, *_STRICT],
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    options = parser.parse_args()
    options.local, options.config = True, "debug" if options.quick else "embedded"
    if not options.quick:
        write(options.json, *compare(options, ARMS))
        return
    options.seeds, options.arms = [1], ["r0"]
    with tempfile.TemporaryDirectory() as directory:
        options.output = Path(directory)
        write(options.json, *compare(options, ARMS))


if __name__ == "__main__":
    main()
