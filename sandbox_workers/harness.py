"""Runs the code of an OutputTest after a program. The code is not in the program's file, and a token marks its end.

For each language, a constant holds the files of such a run, with the placeholders {program}, {code} and {token}.
`run.*` deletes the test's file before the program starts, runs the program, then the code, and then prints the token
that the runner drew. If the process ends earlier, successfully or not, the test has not passed. The code prints by the
interpreter's own function, not by one with which the program replaced it.

Not covered: a program that searches the memory of its own process. In a shared interpreter this is always possible.
"""

_TEST = "{token}\n{code}"

_PYTHON = """
def run():
    import builtins, os, sys
    with open("test.py", encoding="utf-8", errors="surrogateescape", newline="") as file:
        token, source = file.readline().strip(), file.read()
    os.unlink("test.py")
    with open("main.py", "rb") as file:
        program = compile(file.read(), "main.py", "exec", dont_inherit=True)
    code = compile(source.encode("utf-8", "surrogateescape"), "test.py", "exec", dont_inherit=True)
    names = sys.modules["__main__"].__dict__
    del names["run"]
    names["__file__"], sys.argv, sys.path[0] = os.path.abspath("main.py"), ["main.py"], os.getcwd()
    print, stdout, write, new = builtins.print, sys.stdout, os.write, open
    exec(program, names)
    builtins.print = print
    if sys.stdout is not stdout:  # which may be detached
        theirs, sys.stdout = sys.stdout, new(1, "w", encoding="utf-8", closefd=False)
        theirs.flush()
        sys.stdout.theirs = theirs  # to its end: it may close what it wraps
    if "print" in names:
        names = names | {"print": print}
    exec(code, names)
    sys.stdout.flush()
    write(1, token.encode())

run()
"""

# Program and code are one chunk, because the code may use the program's locals. The functions that print are local to the
# code, and only the end of the chunk returns the token.
_LUA = """
local file = assert(io.open("test.lua"))
local token, code = file:read("l", "a")
file:close()
os.remove("test.lua")
file = assert(io.open("main.lua"))
local program = file:read("a"):gsub("^#[^\\n]*", "")
file:close()
arg = {[0] = "main.lua"}

local next, print, assert, error, tostring, getmetatable = next, print, assert, error, tostring, getmetatable
local stdout, write = io.stdout, io.stdout.write
local function copy(from, to)
  for name, value in next, from do to[name] = value end
  return to
end
local io, table, string = io, table, string
local own_io, own_table, own_string = copy(io, {}), copy(table, {}), copy(string, {})
local function library()  -- what the program added to them stays
  getmetatable("").__index = string
  return print, assert, error, tostring, copy(own_io, io), copy(own_table, table), copy(own_string, string)
end

local begin = "\\nlocal print, assert, error, tostring, io, table, string = (...)()\\n"
local chunk, fault = load(program .. begin .. code .. "\\nreturn '" .. token .. "'", "@main.lua")
if not chunk then error(fault, 0) end
if chunk(library) == token then write(stdout, token) end
"""

# Program and code are one function, because the code may use the program's const and let. It is an arrow function, because
# that has no `arguments`.
_JAVASCRIPT = """'use strict';
const fs = require('fs');
const test = fs.readFileSync('test.js', 'utf8');
fs.unlinkSync('test.js');
const token = test.slice(0, test.indexOf('\\n')), code = test.slice(test.indexOf('\\n') + 1);
const program = fs.readFileSync('main.js', 'utf8').replace(/^#!.*/, '');
const stdout = process.stdout, write = stdout.write, methods = {...console}, assign = Object.assign;
const restore = () => { assign(console, methods); stdout.write = write; };
const file = __dirname + '/main.js';
process.argv[1] = file;
const run = require('vm').runInThisContext(
  '(exports, require, module, __filename, __dirname, __restore) => {\\n' + program + '\\n;__restore();\\n' + code +
  '\\n;return "' + token + '";\\n}', {filename: file, lineOffset: -1});
if (run(exports, require, module, file, __dirname, restore) === token) write.call(stdout, token);
"""

# In POSIX mode, which an assignment switches on, `unset` and `eval` are found before functions of the same name.
_BASH = """
BASH_ARGV0=main.sh
exec 60<test.sh
rm -f test.sh
{
  . ./main.sh
  POSIXLY_CORRECT=1
  unset -f unset builtin eval trap read printf echo exit test '['
  trap - DEBUG ERR RETURN
  unset POSIXLY_CORRECT
  IFS= read -r -u 60 __token
  IFS= read -r -d '' -u 60 __code || :
  exec 60<&-
  eval "$__code"
  __status=$?
  printf %s "$__token"
  exit "$__status"
}
"""

# The linker's --wrap leaves the meaning of `main` as it is. The lines that notice its end stand before the program, so the
# program's macros do not apply to them.
_C = """
int __real_main(int, char **, char **);
long __write_token(int, const void *, unsigned long) __asm__("write");
int __wrap_main(int count, char **words, char **environment) {
    int status = __real_main(count, words, environment);
    return __write_token(1, "{token}", sizeof "{token}" - 1) < 0 ? 1 : status;
}
#include "main.c"
#undef main
#line 1 "test.c"
{code}
"""

PYTHON = {"main.py": "{program}", "test.py": _TEST, "run.py": _PYTHON}
LUA = {"main.lua": "{program}", "test.lua": _TEST, "run.lua": _LUA}
JAVASCRIPT = {"main.js": "{program}", "test.js": _TEST, "run.js": _JAVASCRIPT}
BASH = {"main.sh": "{program}\n:\n", "test.sh": _TEST, "run.sh": _BASH}
"""The `:` at the end keeps `.` from failing under `set -e` if the program's last condition is false."""
C = {"main.c": "{program}", "run.c": _C}
