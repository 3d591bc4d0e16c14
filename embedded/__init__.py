"""The world that needs no download: problems and tiny models that are taught to play with them, on two CPU cores.

Programs are real code judged by real execution, but no benchmark: they exist so that the whole machinery can be seen
learning.

    catalogue          a row per game: its problems, and what its models are shown before they play
    problems           'pick, change, collect' functions of ints, lists and strings, of a grammar (grammar, sampling)
    lua  prediction  grid_tasks (grid_families)       other games' problems, and their lessons
    multistage (traces)  code_execution  boards       further lessons
    misconceptions     what the demonstrators get wrong
    model  supervised  teaching                       the tiny model, its training, where its weights are
    warm_start/        the weights of the recipe's models in both sizes, and what they are made from
"""
