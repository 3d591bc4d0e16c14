"""Seeds by address: a seed is a hash of where it is used, never of the order in which things arrive."""

import hashlib


def derive_seed(*address: int | str) -> int:
    """A 62-bit seed for an address such as (run_seed, "step", 12, "p00041", "generator", sibling, turn)."""
    text = "/".join(f"{type(part).__name__}:{part}" for part in address)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 2
