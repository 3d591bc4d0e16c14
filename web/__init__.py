"""What every HTTP service of ours has in common: keys, limits, an audit log, figures. Knows nothing of what is served."""
