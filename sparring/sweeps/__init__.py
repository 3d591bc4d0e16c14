"""Series of runs that differ in some keys: runs them, and reports what their files show together, with intervals.

spec: what a sweep is. ablations, problem_files: where its settings come from. driving: one process of driver.py.
tuning: runs the trials by Ray Tune, the only file that imports ray. runs: reads run directories. reports, tables,
plots: the results. Not covered: how a run learns; a sweep knows runs by their command line and their files alone.
"""
