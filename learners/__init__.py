"""From batches to weights. Sees batches, never games."""
