"""The part that runs inside a sandbox. It uses only the standard library, imports nothing from the rest of the project,
and needs Python 3.11 or later.

S is the process that runs a program, T the process that evaluates data tests.

| module | contents |
|---|---|
| supervisor | the first process: it holds all content and is connected to the host; it never forks after its start |
| zygote | one per slot and role: it forks clean children, kills what they leave and empties their directories; it sees no content |
| round, child, wall, stop | the process of a program from its start to its end, its clocks and its limits |
| commands, command | a round of a program in any language that is judged by its output |
| judging, shared, pair | a round of a Python program with code tests or data tests |
| roles | what the child processes do: S runs the program, T evaluates data tests |
| code_tests | how code tests run, and what they mean |
| data_tests, pure, walk | which tests are data tests, what they may use, how they are evaluated |
| calls, copies, values, plain | how T asks S, and values as JSON |
| watching | how values of a data test and the program's copies of them stay equal |
"""
