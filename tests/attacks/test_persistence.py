"""Programs that would leave something behind: the next job in the same slot finds nothing of it."""

from collections.abc import Callable

import pytest

from sparring.core.verdict import Status
from tests.attacks.conftest import WORKS

TOUCH = f"""{WORKS}
def f():
    try: leave(); return 'left'
    except Exception: return 'refused'
"""
SHARED = "('/dev/shm/left', '/dev/mqueue/left', '/tmp/left', '/var/tmp/left', '/run/lock/left')"
TIMED = "('/var/spool/cron/crontabs/left', '/etc/cron.d/left', '/var/spool/at/left', '/etc/ld.so.preload')"
THERE = "import os\ndef f(): return [path for path in {} if os.path.exists(path)]"
# first program (its f() leaves something), what the next program's f() looks for, and what it finds
ATTACKS: dict[str, tuple[str, str, str]] = {
    "files of every kind": (
        "import os, socket\ndef leave():\n"
        "    open('.hidden', 'w').close(); os.mkdir('d'); os.symlink('/', 'd/l')\n"
        "    os.link('.hidden', 'h'); open('.bashrc', 'w').close()",
        "import os\ndef f(): return sorted(os.listdir('.'))",
        "[]",
    ),
    "attribute of the home directory": (
        "import os\ndef leave(): os.setxattr('.', 'user.left', b'message')",
        "import os\ndef f(): return os.listxattr('.')",
        "[]",
    ),
    "access list of the home directory": (
        "import os\nentry = bytes.fromhex('0200000001000700ffffffff04000700ffffffff20000700ffffffff')\n"
        "def leave():\n    for n in ('access', 'default'): os.setxattr('.', 'system.posix_acl_' + n, entry)",
        "import os\ndef f():\n    got = []\n    for n in ('access', 'default'):\n"
        "        try: os.getxattr('.', 'system.posix_acl_' + n); got.append(n)\n"
        "        except OSError: pass\n    return got",
        "[]",
    ),
    "mode and owner of the home directory": (
        "import os\ndef leave():\n"
        "    works(os.chmod, '.', 0o777); works(os.chown, '.', -1, os.getgid()); works(os.utime, '.', (1, 1))",
        "import os\ndef f(): s = os.stat('.'); return s.st_mode & 7, s.st_mtime > 9, os.access('.', os.W_OK)",
        "(0, True, True)",
    ),
    "shadow of a standard module": (
        "def leave():\n    for n in ('random', 'json', 'sitecustomize', 'usercustomize', 'program', "
        "'runner'):\n"
        "        open(n + '.py', 'w').write('print(77)')",
        "import importlib.util, random\n"
        "def f(): return importlib.util.find_spec('usercustomize') is None, hasattr(random, 'seed')",
        "(True, True)",
    ),
    "packages of the user": (
        "import os, sys\ndef leave():\n"
        "    d = os.path.expanduser(f'~/.local/lib/python3.{sys.version_info[1]}/site-packages')\n"
        "    os.makedirs(d); open(d + '/x.pth', 'w').write('import builtins; builtins.left = 1')",
        "import builtins, os\ndef f(): return hasattr(builtins, 'left'), "
        "os.path.exists(os.path.expanduser('~/.local'))",
        "(False, False)",
    ),
    "standard library on disk": (
        "import os, textwrap, importlib.util\ndef leave():\n"
        "    for path in (textwrap.__file__, importlib.util.cache_from_source(textwrap.__file__)):\n"
        "        works(lambda: open(path, 'ab').write(b'left = 1')); works(os.replace, path, path + '.old')",
        "import textwrap\ndef f(): return hasattr(textwrap, 'left'), textwrap.indent('a', ' ')",
        "(False, ' a')",
    ),
    "runner on disk": (
        "import os\ndef leave():\n    for name in os.listdir('/opt/sparring/runner'):\n"
        "        for act in (lambda p: open(p, 'a'), os.unlink, lambda p: os.chmod(p, 0o666)):\n"
        "            works(act, '/opt/sparring/runner/' + name)",
        "import os\ndef f(): return 'zygote.py' in os.listdir('/opt/sparring/runner')",
        "True",
    ),
    "modules in memory": (
        "import json, sys, random, builtins\ndef leave():\n"
        "    sys.modules['left'] = json; json.left = builtins.left = 1\n    random.seed(77)",
        "import builtins, json, random, sys\ndef f():\n    r = random.Random(); r.seed(0)\n"
        "    return 'left' in sys.modules, hasattr(json, 'left'), hasattr(builtins, 'left'), "
        "random.random() == r.random()",
        "(False, False, False, True)",
    ),
    "environment and working directory": (
        "import os, time\ndef leave():\n"
        "    os.environ.update(PYTHONPATH='/tmp', LD_PRELOAD='x.so', TZ='Asia/Tokyo', BASH_ENV='x')\n"
        "    time.tzset(); os.chdir('/')",
        "import os, time\ndef f(): return [n for n in os.environ if n in ('PYTHONPATH', 'LD_PRELOAD', "
        "'TZ', 'BASH_ENV')], time.timezone,\\\n"
        "    os.getcwd().startswith('/jobs/')",
        "([], 0, True)",
    ),
    "umask, niceness and limits": (
        "import os, resource as r, signal\ndef leave():\n"
        "    os.umask(0); r.setrlimit(r.RLIMIT_NOFILE, (20, 20))\n"
        "    r.setrlimit(r.RLIMIT_AS, (60 << 20, 60 << 20)); os.nice(19)",
        "import os, resource as r\n"
        "def f(): old = os.umask(0); return old, os.getpriority(0, 0) < 19, r.getrlimit(r.RLIMIT_NOFILE), "
        "r.getrlimit(r.RLIMIT_AS)[0] >> 20",
        "(63, True, (64, 64), 128)",
    ),
    "signals ignored and alarms set": (
        "import signal as s\ndef leave():\n"
        "    s.signal(15, s.SIG_IGN); s.pthread_sigmask(s.SIG_BLOCK, [2, 14])\n"
        "    s.setitimer(s.ITIMER_REAL, 0.2); s.setitimer(s.ITIMER_PROF, 0.01)",
        "import signal as s, time\n"
        "def f(): time.sleep(0.3); return int(s.getsignal(15)), len(s.pthread_sigmask(0, [])), "
        "s.getitimer(0), s.getitimer(2)",
        "(0, 0, (0.0, 0.0), (0.0, 0.0))",
    ),
    "limits of the interpreter": (
        "import sys, gc, decimal\ndef leave():\n"
        "    sys.setrecursionlimit(99); sys.set_int_max_str_digits(640); gc.disable()\n"
        "    sys.setswitchinterval(9); decimal.getcontext().prec = 2",
        "import sys, gc, decimal\ndef f(): return sys.getrecursionlimit(), sys.get_int_max_str_digits(), "
        "gc.isenabled(), decimal.getcontext().prec",
        "(3000, 0, True, 28)",
    ),
    "daemon that holds files and a name": (
        "import os, socket, time\ndef leave():\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork(): os._exit(0)\n"
        "        kept = open('kept', 'wb', 0); kept.write(bytes(3 << 20)); os.unlink('kept')\n"
        "        s = socket.socketpair()[0]; s.bind('\\0left'); os.memfd_create('left')\n"
        "        time.sleep(60)\n    time.sleep(0.05)",
        "import os, socket\ndef f():\n    s = socket.socketpair()[0]\n"
        "    try: s.bind('\\0left'); return 'free'\n"
        "    except OSError as e: return 'free' if e.errno == 1 else 'taken'",
        "'free'",
    ),
    "daemon that locks a file of all": (
        "import fcntl, os, time\ndef leave():\n    if os.fork() == 0:\n"
        "        os.setsid(); fcntl.flock(os.open('/bin/sh', 0), fcntl.LOCK_EX)\n"
        "        time.sleep(60)\n    time.sleep(0.05)",
        "import fcntl, os\ndef f():\n"
        "    try: fcntl.flock(os.open('/bin/sh', 0), fcntl.LOCK_EX | fcntl.LOCK_NB); return 'free'\n"
        "    except BlockingIOError: return 'locked'\n    except OSError: return 'free'",
        "'free'",
    ),
    "processes of its user used up": (
        "import os, time\ndef leave():\n    for _ in range(14):\n"
        "        if os.fork() == 0: os.setsid(); time.sleep(60)",
        "import os\ndef f():\n    pids = []\n    for _ in range(8):\n        pids.append(os.fork())\n"
        "        if pids[-1] == 0: os._exit(0)\n"
        "    return [os.waitpid(pid, 0)[1] for pid in pids]",
        "[0, 0, 0, 0, 0, 0, 0, 0]",
    ),
    "disk used up": (
        "import os\nkept = []\ndef leave():\n"
        "    for n in range(8): kept.append(open(str(n), 'wb', 0)); os.unlink(str(n)); "
        "kept[-1].write(bytes(3 << 20))",
        "def f(): return [open(str(n), 'wb').write(bytes(3 << 20)) >> 20 for n in range(4)]",
        "[3, 3, 3, 3]",
    ),
    "shared memory and queues by name": (
        f"import ctypes\ndef leave():\n    for path in {SHARED}: works(lambda: open(path, 'w').write('message'))\n"
        "    ctypes.CDLL(None).syscall(240, b'left', 0o102, 0o666, 0)",
        THERE.format(SHARED),
        "[]",
    ),
    "System V objects": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "def leave(): libc.shmget(77, 4096, 0o1666); libc.semget(77, 1, 0o1666); libc.msgget(77, 0o1666)",
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "def f(): return libc.shmget(77, 0, 0), libc.semget(77, 0, 0), libc.msgget(77, 0)",
        "(-1, -1, -1)",
    ),
    "keys of its user": (
        "import ctypes\ndef leave(): ctypes.CDLL(None).syscall(248, b'user', b'left', b'x', 1, -4)",
        "import ctypes, os\ndef f(): return ctypes.CDLL(None).syscall(249, b'user', b'left', 0, -4)",
        "-1",
    ),
    "tables of cron and at": (
        "import os, subprocess\ndef leave():\n"
        f"    for path in {TIMED}: works(lambda: open(path, 'w').write('* * * * * true\\n'))\n"
        "    subprocess.run('echo \"* * * * * true\" | crontab -', shell=True, stderr=-3)",
        THERE.format(TIMED),
        "[]",
    ),
    "terminal that stays open": (
        "import os, time\ndef leave():\n    a, b = os.openpty()\n"
        "    os.chmod(b, 0o666); os.write(b, b'message\\n')\n"
        "    if os.fork() == 0: os.setsid(); time.sleep(60)",
        "import os\ndef f(): return [n for n in (os.listdir('/dev/pts') if os.path.isdir('/dev/pts') else "
        "[]) if n.isdigit()]",
        "[]",
    ),
    "its fork server": (
        "import os, signal\ndef leave():\n"
        "    for n in (signal.SIGSTOP, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGCONT):\n"
        "        works(os.kill, os.getppid() or 1 << 22, n)\n"
        "    os.sched_yield(); os.setpgid(0, os.getppid() or 1)",
        "def f(): return 'served'",
        "'served'",
    ),
    "content of the last job in memory": (
        "kept = ['zq' + '7772' + 'zq'] * 1000\n"
        "def leave(): kept.append(bytearray(('zq' + '7772' + 'zq').encode() * 100_000))",
        "import ctypes, re\ndef f():\n    found = 0\n    wanted = ('zq' + '7772' + 'zq' + 'zq').encode()\n"
        "    for size in (1 << 12, 1 << 16, 1 << 20, 1 << 22):\n"
        "        libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; p = libc.malloc(size)\n"
        "        found += wanted in ctypes.string_at(p, size)\n    return found",
        "0",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_persistence(attack: Callable, name: str) -> None:
    program, look, found = ATTACKS[name]
    assert attack(program + "\n" + TOUCH, "f() in ('left', 'refused')").value == "True"
    verdict = attack(look, "f()")
    assert (verdict.status, verdict.value) == (Status.PASSED, found), verdict
