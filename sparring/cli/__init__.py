"""Commands besides training, one file each."""
