"""Seeds by address: a seed is a hash of the place at which it is used, so it does not depend on the order of events."""

import hashlib
import json


def derive_seed(*address: int | str) -> int:
    """Returns a 62-bit seed for an address such as (run_seed, "step", 12, "p00041", "generator", sibling, turn)."""
    text = json.dumps(address)  # distinguishes 1 from "1", and ("a", "b") from ("a/b",)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 2
