"""Series of runs that differ in some keys: what is run, and what the runs' files say together, with intervals.

spec: what a sweep is. ablations, problem_files: where its settings come from. driving: one run of driver.py under way.
tuning: Ray Tune around it, the only file that imports ray. runs: what run directories hold. reports, tables, plots: what
they come to. Not here: how a run learns; a sweep knows runs by their command line and their files alone.
"""
