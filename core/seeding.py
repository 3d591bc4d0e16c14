"""Seeds by address: a seed is a hash of where it is used, never of the order in which things arrive."""

import hashlib
import json


def derive_seed(*address: int | str) -> int:
    """A 62-bit seed for an address such as (run_seed, "step", 12, "p00041", "generator", sibling, turn)."""
    text = json.dumps(address)  # tells 1 from "1", and ("a", "b") from ("a/b",)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 2
