"""What runs inside a sandbox: standard library only, no import from the project, Python 3.11 or later.

supervisor  holds all content, talks to the host; never forks after start
zygote      one per slot and role: forks clean children, kills what they leave, wipes their directories; sees no content
round       a program's process from its start to its end: `pair` with one for its tests, `commands` alone
roles       the two children of a pair: the program, and the test that calls it
peer        the value RPC between the two; values, codec, remote, mirrors: what may travel over it
"""
