"""Programs that reach for what lies outside: each reports what it got, and must have got nothing."""

from collections.abc import Callable

import pytest

from sparring.core.verdict import Status
from tests.attacks.conftest import WORKS

REACH = f"""{WORKS}
import ctypes, fcntl, glob, os, resource, signal, socket, stat
libc = ctypes.CDLL(None)
def opened(*paths, how=os.O_RDWR): return [p for p in paths if works(lambda: os.close(os.open(p, how)))]
def others():
    pids = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != os.getpid()]
    return pids + [pid for pid in (1, os.getppid()) if pid not in (0, os.getpid(), *pids)]
def done(act): return [pid for pid in others() if works(act, pid)]
"""
# Each program is put after REACH.
NOTHING_REACHED = {
    "ptrace": "def f(): return [p for p in others() if libc.ptrace(16, p, 0, 0) == 0]",
    "kill the others": "def f(): return done(lambda pid: os.kill(pid, 9))",
    "become root": (
        "calls = (os.setuid, 0), (os.setgid, 0), (os.setgroups, [0]), (os.chroot, '/')\n"
        "def f(): return [act.__name__ for act, to in calls if works(act, to)]"
    ),
    "write outside": (
        "folders = ('/', '/jobs', '/tmp', '/var/tmp', '/dev', '/dev/shm', '/dev/mqueue', '/opt/sparring', '/run',\n"
        "           '/proc/sys/kernel', '/sys/fs/cgroup', '/usr', '/etc')\n"
        "def f(): return [folder for folder in folders if works(open, folder + '/left', 'w')]"
    ),
    "datagram and raw sockets": (
        "kinds = (2, 2), (2, 3), (10, 1), (10, 2), (10, 3), (17, 3)\n"
        "def f(): return [kind for kind in kinds if works(socket.socket, *kind)]"
    ),
    "sockets of every family": "def f(): return [family for family in range(50) for kind in (1, 2, 3, 5) if works(socket.socket, family, kind)]",
    "pairs of sockets that are not local": (
        "def f(): return [family for family in (0, *range(2, 50))\n"
        "                 if works(socket.socketpair, family, refused=(OSError, ValueError))]"
    ),
    "doors of the host": (
        "def f(): return [p for p in ('/run/docker.sock', '/var/run/docker.sock', '/run/dbus', "
        "'/home', '/root',\n"
        "    '/etc/shadow', '/work', '/var/lib/docker', '/host') if os.access(p, os.R_OK) and "
        "(os.path.isfile(p) or p[1:] and\n"
        "    not p.startswith('/home') and os.listdir(p))]"
    ),
    "memory of the others": "def f(): return done(lambda pid: open(f'/proc/{pid}/mem', 'rb').close())",
    "namespaces of the others": "def f(): return done(lambda pid: os.open(f'/proc/{pid}/ns/pid', os.O_RDONLY))",
    "limits of the others": "def f(): return done(lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0)))",
    "priority of the others": "def f(): return done(lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19))",
    "CPUs of the others": "def f(): return done(lambda pid: os.sched_setaffinity(pid, {0}))",
    "signals by process descriptor": "def f(): return done(lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGSTOP))",
    "signals to whole groups": (
        "def f():\n    signal.signal(15, signal.SIG_IGN)\n"
        "    return done(lambda pid: os.killpg(pid, 15) if pid > 1 else os.listdir('/none'))"
    ),
    "higher limits": (
        "def raised(n):\n    hard = resource.getrlimit(n)[1]\n"
        "    return hard != -1 and works(resource.setrlimit, n, (hard + 1, hard + 1), refused=(OSError, ValueError))\n"
        "def f(): return [n for n in range(16) if raised(n)]"
    ),
    "set-uid programs": (
        "import subprocess\ndef f():\n    got = []\n"
        "    for path in glob.glob('/bin/*') + glob.glob('/usr/s?in/*'):\n"
        "        if not os.path.islink(path) and os.stat(path).st_mode & 0o4000 and path.endswith(('/su', "
        "'/sudo', '/mount')):\n"
        "            ran = subprocess.run([path, '-c', 'id -u'] if 'su' in path else [path, '/x'], "
        "capture_output=True)\n"
        "            got += [path] * (ran.returncode == 0)\n    return got"
    ),
    "devices": (
        "def f(): return opened('/dev/mem', '/dev/kmsg', '/dev/fuse', '/dev/kvm', '/dev/net/tun', '/dev/port',\n"
        "    '/dev/loop-control', '/dev/vsock', *glob.glob('/dev/[svnl][dvmo][abm0-9]*'), how=os.O_RDONLY)"
    ),
    "new device nodes": (
        "kinds = stat.S_IFBLK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK\n"
        "def f(): return [kind for kind in kinds if works(os.mknod, f'n{kind}', kind | 0o666, os.makedev(1, 1))]"
    ),
    "knobs of the kernel": (
        "def f(): return opened('/proc/sysrq-trigger', '/proc/sys/kernel/core_pattern', '/proc/kcore',\n"
        "    '/proc/sys/vm/overcommit_memory', '/sys/kernel/uevent_helper', '/proc/1/oom_score_adj', how=1)"
    ),
    "control groups": (
        "def f():\n    if works(os.mkdir, '/sys/fs/cgroup/left'): return 'made'\n"
        "    return opened(*glob.glob('/sys/fs/cgroup/*') + glob.glob('/sys/fs/cgroup/*/*'), how=os.O_WRONLY)"
    ),
    "terminal of the host": "def f(): return opened('/dev/tty', '/dev/console', '/dev/pts/0', '/dev/tty0')",
    "links out of its directory": (
        "def f():\n    for n, to in enumerate(('/', '/etc', '/jobs', '/opt/sparring', '/proc/1/root', '.')): os.symlink(to, str(n))\n"
        "    paths = '/bin/sh', '/opt/sparring/runner/zygote.py'\n"
        "    return [n for n in range(5) if works(open, f'{n}/left', 'w')] + [p for p in paths if works(os.link, p, 'hard')]"
    ),
    "its own directory replaced": (
        "home = os.getcwd()\ncalls = ((os.rmdir, home), (os.rename, home, '/jobs/x'), (os.chown, home, -1, 0),\n"
        "         (os.symlink, '/', '/jobs/y'), (os.mkdir, '/jobs/z'))\n"
        "def f(): return [act.__name__ for act, *given in calls if works(act, *given)]"
    ),
    "test's standard output": "def f(): return done(lambda pid: open(f'/proc/{pid}/fd/1', 'w').write('x'))",
}
REFUSED = {
    "internet socket": "def f(): return works(socket.socket)",
    "abstract unix socket": "def f(): return works(lambda: socket.socket(socket.AF_UNIX).bind('\\0meet'))",
    "options of bubblewrap, which name directories of the host": (
        "def f():\n    try: return 'sandbox_workers' in open('/proc/1/cmdline').read()\n"
        "    except OSError: return False"
    ),
    "name lookup": "def f(): return works(socket.getaddrinfo, 'example.com', 80)",
    "abstract name for half of a pair": (
        "def meet():\n    (a, _), (b, _) = [socket.socketpair(type=socket.SOCK_DGRAM) for _ in 'ab']\n"
        "    for s in (a, b): libc.connect(s.fileno(), bytes(2), 2)  # AF_UNSPEC: leave the pair\n"
        "    a.bind('\\0meet'); b.sendto(b'hello', '\\0meet'); a.recv(9)\n"
        "def f(): return works(meet)"
    ),
    "set-uid file of its own": (
        "import shutil\ndef f():\n    shutil.copy('/bin/true', 'a'); os.chmod('a', 0o6755)\n"
        "    return works(os.chown, 'a', 0, 0)"
    ),
    "next process number": "def f(): return works(lambda: os.write(os.open('/proc/sys/kernel/ns_last_pid', os.O_WRONLY), b'30000'))",
    "spared by the memory killer": "def f(): return works(lambda: open('/proc/self/oom_score_adj', 'w').write('-1000'))",
}
# program, a test where that is not f(), its value
OTHERS: dict[str, tuple[str, ...]] = {
    "new namespaces and mounts": (
        "def f(): return [libc.unshare(0x10000000), libc.unshare(0x20000), libc.mount(b'x', b'/', "
        "b'tmpfs', 0, None)]",
        "[-1, -1, -1]",
    ),
    "System V memory": ("def f(): return libc.shmget(77, 4096, 0o1666), libc.msgget(77, 0o1666)", "(-1, -1)"),
    "other directories of the sandbox": (
        "def f():\n    seen = []\n    for name in os.listdir('/jobs'):\n"
        "        if os.path.realpath('.') == '/jobs/' + name: continue\n"
        "        try: seen += os.listdir('/jobs/' + name)\n        except PermissionError: pass\n"
        "    return seen",
        "open('mine', 'w').close(); f()\nassert f() == []",
        "None",
    ),
    "environment": ("def f(): return sorted(os.environ)", "['HOME', 'LANG', 'PATH', 'TMPDIR']"),
    "environment and maps of the others": (
        "def f(): return [done(lambda pid: open(f'/proc/{pid}/{n}').read(1)) for n in ('environ', 'maps', 'auxv')]",
        "[[], [], []]",
    ),
    "roots and descriptors of the others": (
        "def f(): return [done(lambda pid: os.listdir(f'/proc/{pid}/{n}')) for n in ('root', 'cwd', 'fd', 'map_files')]",
        "[[], [], [], []]",
    ),
    # The sender's rights are checked when the signal is sent: the others live on, and the test ends well.
    "signals by the owner of a descriptor": (
        "def f():\n    for pid in others():\n        a, b = os.pipe()\n"
        "        fcntl.fcntl(a, fcntl.F_SETSIG, 9)\n"
        "        if not works(fcntl.fcntl, a, fcntl.F_SETOWN, pid): continue\n"
        "        fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC)\n"
        "        os.write(b, b'x'); os.close(a); os.close(b)\n    return 'sent'",
        "'sent'",
    ),
    "capabilities": (
        "head = (ctypes.c_uint32 * 2)(0x20080522, 0)\ndef f():\n"
        "    has = (ctypes.c_uint32 * 6)()\n    libc.capget(head, has)\n"
        "    more = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)\n"
        "    return sum(has), libc.capset(head, more), [libc.prctl(47, 2, n, 0, 0) for n in (6, 7, 21)]",
        "(0, -1, [-1, -1, -1])",
    ),
    "filter and privileges switched off": (
        "def f(): return libc.prctl(38, 0, 0, 0, 0), libc.prctl(39, 0, 0, 0, 0), libc.prctl(21)",
        "(-1, 1, 2)",
    ),
    "inherited descriptors": (
        "def f(): return [fd for fd in range(1024) if works(os.fstat, fd)]",
        "[0, 1, 2, 11]",
    ),
}
FOUND = dict.fromkeys(NOTHING_REACHED, "[]") | dict.fromkeys(REFUSED, "False")
ATTACKS = {name: (REACH + of, FOUND[name]) for name, of in (NOTHING_REACHED | REFUSED).items()}
ATTACKS |= {name: (REACH + of, *rest) for name, (of, *rest) in OTHERS.items()}


@pytest.mark.parametrize("name", ATTACKS)
def test_escape(attack: Callable, name: str) -> None:
    program, *test, found = ATTACKS[name]
    verdict = attack(program, *(test or ["f()"]))
    assert verdict.status is Status.PASSED, verdict
    assert str(verdict.value) == found
