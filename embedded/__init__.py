"""The embedded problem set: small functions drawn from a grammar, with texts to warm-start a tiny model on.

Problems are 'pick, change, collect' functions over ints, lists of ints and strings. They are real code judged by
real execution, but no benchmark: they exist so that the whole machinery can be seen learning on two CPU cores.
Beside them, for code golf: tasks on small grids (`grid_tasks`), with programs in three styles.
"""
