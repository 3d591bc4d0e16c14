"""The data types of Sparring. Nothing here imports ray, torch or vllm."""

import sys

# Data sets hold integers that are longer than Python reads by default (4,300 digits). LiveCodeBench's own harness has the
# same limit of 50,000 digits.
if 0 < sys.get_int_max_str_digits() < 50_000:
    sys.set_int_max_str_digits(50_000)
