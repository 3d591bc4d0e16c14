"""The curriculum: which stage, which phase, who learns, on which problems. Pure; state in, state out."""
