"""How the code of an OutputTest runs after a program: out of the program's file, and with a token at its end.

Per language, the files of such a run, with {program}, {code} and {token} where they belong. `run.*` takes the test's file
away before the program starts, runs the program, then the code, then prints the token that the runner drew: whatever
ends the process before, well or not, has not passed. What prints in the code is the interpreter's own function, not
one that the program put in its place.

Not covered: a program that searches the memory of its own process. One interpreter can always look.
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

# One chunk, for the code may use the program's locals. What prints is local to the code, and only the end of the chunk
# returns the token.
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

# One function, for the code may use the program's const and let; an arrow, for it has no `arguments`.
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

# POSIX mode, which an assignment starts, finds `unset` and `eval` before functions of that name.
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

# The linker's --wrap: main keeps its meaning, and its end is seen by lines that the program's macros do not reach.
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
"""With `:` at the end, `.` does not fail where the program's last condition does, under `set -e`."""
C = {"main.c": "{program}", "run.c": _C}
