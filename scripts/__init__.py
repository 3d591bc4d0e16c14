"""The other acts beside training, one file each."""
