"""How good the players are, on problems that training never saw."""
