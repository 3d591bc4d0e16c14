"""The curriculum: it chooses the stage, the phase, the learning policies and the problems of each training step."""
