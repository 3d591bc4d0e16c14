"""Common command-line options of the services. This module imports little, since commands parse options before they know
whether they will serve."""

import argparse

from sparring.core.commands import home_path


def add_options(parser: argparse.ArgumentParser, *, port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1; another one needs --keys")
    parser.add_argument("--port", type=port_number, default=port, help=f"0: any free one; default: {port}")
    parser.add_argument(
        "--keys", type=home_path, help="file of keys (python -m sparring keys). Default: no keys are required"
    )
    parser.add_argument(
        "--requests-per-minute",
        type=float,
        help="maximum number of requests per minute and key. Default: any number",
    )
    parser.add_argument(
        "--requests-at-once",
        type=int,
        help="maximum number of requests of a key at a time. Default: 512",
    )
    parser.add_argument(
        "--max-body-mb", type=float, default=8.0, help="maximum size of a request. Default: 8"
    )
    parser.add_argument(
        "--audit-log", type=home_path, help="JSON lines, one per request; see sparring/web/guard.py"
    )


def port_number(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 65535")
    return int(text)
