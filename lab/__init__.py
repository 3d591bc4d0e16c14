"""Makes the toy problems and toy models in sparring/examples: small problems, and tiny models that are trained on two CPU
cores. The product does not import this package; benchmarks do.

The programs are real code and are executed by the sandbox, but the problems are no benchmark: they exist to show that
the whole training pipeline learns.

    examples           writes sparring/examples: `python -m lab.examples`
    catalogue          a row per game: its problems, and the demonstrations for its models
    problems           'pick, change, collect' functions of ints, lists and strings, of a grammar (grammar, sampling)
    lua  prediction  grid_tasks (grid_families)       problems of other games, and their demonstrations
    multistage (traces)  code_execution  boards       further demonstrations
    misconceptions     the systematic mistakes in the demonstrations
    model  supervised  teaching                       the tiny model, its supervised training, the cache of its weights
"""
