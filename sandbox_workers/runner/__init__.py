"""What runs inside a sandbox: standard library only, no import from the project, Python 3.11 or later.

| module | what it holds |
|---|---|
| supervisor | the first process: holds all content, talks to the host; never forks after its start |
| zygote | one per slot and role: forks clean children, kills what they leave, wipes their directories; sees no content |
| round, child, wall, stop | a program's process from its start to its end, its clocks and limits |
| commands, command | a round of a program in any language, which is judged by what it prints |
| judging, shared, pair | a round of a Python program whose tests are code, or data |
| roles | what the children do: S runs the program, T evaluates tests that are data |
| code_tests | what a test means that is code |
| data_tests, pure, walk | which tests are data, what they may use, how they are evaluated |
| calls, copies, values, plain | how T asks S, and values as JSON |
"""
