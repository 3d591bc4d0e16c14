"""What runs inside a sandbox: standard library only, no import from the project, Python 3.11 or later.

supervisor  holds all content, talks to the host; never forks after start
zygote      one per slot and role: forks clean children, kills what they leave, wipes their directories; sees no content
round       a program's process from its start to its end: `pair` with one for its tests, `commands` alone
roles       the two children of a pair: the program, and the test that calls it; `suite` is what a test means
data_tests  tests that are data: read by their text, walked on copies; calls, how they ask the program; copies, values as JSON
peer        of tests that are code, the value RPC between the two, one end of it: questions, answers, and what goes along with them
codec       values as JSON: by value (values, plain, library), containers with a twin (mirrors), else as a number
remote      stand-ins for the other end's objects, and what decides no comparison; standins, what they do
operations  what one end does for the other; permits, what a program may ask of its test; errors, whose doing it is
"""
