"""Runs a command: `python -m sparring evaluate ...`, or `sparring evaluate ...` if the package is installed."""

import runpy
import sys
from importlib.util import find_spec

COMMANDS = {
    "train": "driver",
    "solve": "sparring.cli.solve",
    "evaluate": "sparring.cli.evaluate",
    "serve": "sparring.cli.serve",
    "keys": "sparring.web.keys",
    "show": "sparring.cli.show",
    "report": "sparring.cli.report",
    "export": "sparring.cli.export",
    "export-tests": "sparring.cli.export_tests",
    "rejudge": "sparring.cli.rejudge",
    "sweep": "sparring.cli.sweep",
    "league": "sparring.cli.league",
    "openenv": "sparring.cli.openenv",
    "judge": "sandbox_workers",
}
"""The module of each command."""


def main() -> None:
    given = sys.argv[1:2]
    if given == ["plan"]:
        sys.argv[1:2] = given = ["train", "--plan"]
    module = COMMANDS.get(given[0]) if given else None
    if module is None:
        known = f"commands: {', '.join(COMMANDS)}, plan (what train would run)"
        if given and given[0] in ("-h", "--help"):
            print(f"usage: sparring COMMAND ...; {known}; sparring COMMAND --help shows a command's options")
            return
        wrong = f"{given[0]} is no command" if given else "no command is given"
        sys.exit(f"error: {wrong}; {known}")
    if find_spec(module.rpartition(".")[0] or module) is None:
        sys.exit(f"error: {given[0]}: only the judge is installed here; install the whole package")
    del sys.argv[1]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
