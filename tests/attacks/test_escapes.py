"""Programs that reach for what lies outside: each reports what it got, and must have got nothing."""

from collections.abc import Callable

import pytest

from sparring.core.verdict import Status

OTHERS = """
import ctypes, fcntl, os, resource, signal
others = [p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if p != os.getpid()]
others += [p for p in (1, os.getppid()) if p not in (0, os.getpid(), *others)]
def done(act):
    found = []
    for pid in others:
        try: act(pid); found.append(pid)
        except OSError: pass
    return found
"""
OPENED = """
import os
def opened(*paths, how=os.O_RDWR):
    found = []
    for path in paths:
        try: os.close(os.open(path, how)); found.append(path)
        except OSError: pass
    return found
"""

# program, a test where that is not f(), its value
ATTACKS: dict[str, tuple[str, ...]] = {
    "internet socket": (
        "import socket\ndef f():\n    try: socket.socket(); return 'open'\n"
        "    except OSError: return 'denied'",
        "'denied'",
    ),
    "abstract unix socket": (
        "import socket\ndef f():\n    try: socket.socket(socket.AF_UNIX).bind('\\0meet'); return 'open'\n"
        "    except OSError: return 'denied'",
        "'denied'",
    ),
    "ptrace": (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
        "def f(): return [p for p in map(int, filter(str.isdigit, os.listdir('/proc'))) if libc.ptrace(16, "
        "p, 0, 0) == 0]",
        "[]",
    ),
    "kill the others": (
        "import os\ndef f():\n    killed = []\n"
        "    for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
        "        if pid == os.getpid(): continue\n"
        "        try: os.kill(pid, 9); killed.append(pid)\n"
        "        except OSError: pass\n    return killed",
        "[]",
    ),
    "options of bubblewrap, which name directories of the host": (
        "def f():\n    try: return 'sandbox_workers' in open('/proc/1/cmdline').read()\n"
        "    except OSError: return False",
        "False",
    ),
    "become root": (
        "import os\ndef f():\n    got = []\n"
        "    for call in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: "
        "os.chroot('/')):\n"
        "        try: call(); got.append(1)\n        except OSError: pass\n    return got",
        "[]",
    ),
    "new namespaces and mounts": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "def f(): return [libc.unshare(0x10000000), libc.unshare(0x20000), libc.mount(b'x', b'/', "
        "b'tmpfs', 0, None)]",
        "[-1, -1, -1]",
    ),
    "System V memory": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "def f(): return libc.shmget(77, 4096, 0o1666), libc.msgget(77, 0o1666)",
        "(-1, -1)",
    ),
    "write outside": (
        "import os\ndef f():\n    wrote = []\n"
        "    for folder in ('/', '/jobs', '/tmp', '/var/tmp', '/dev', '/dev/shm', '/dev/mqueue', "
        "'/opt/sparring', '/run',\n"
        "                   '/proc/sys/kernel', '/sys/fs/cgroup', '/usr', '/etc'):\n"
        "        try: open(folder + '/left', 'w').close(); wrote.append(folder)\n"
        "        except OSError: pass\n"
        "    return wrote",
        "[]",
    ),
    "other directories of the sandbox": (
        "import os\ndef f():\n    seen = []\n    for name in os.listdir('/jobs'):\n"
        "        if os.path.realpath('.') == '/jobs/' + name: continue\n"
        "        try: seen += os.listdir('/jobs/' + name)\n        except PermissionError: pass\n"
        "    return seen",
        "open('mine', 'w').close(); f()\nassert f() == []",
        "None",
    ),
    "environment": (
        "import os\ndef f(): return sorted(os.environ)",
        "['HOME', 'LANG', 'PATH', 'TMPDIR']",
    ),
    "datagram and raw sockets": (
        "import socket\ndef f():\n    got = []\n"
        "    for family, kind in ((2, 2), (2, 3), (10, 1), (10, 2), (10, 3), (17, 3)):\n"
        "        try: socket.socket(family, kind); got.append((family, kind))\n"
        "        except OSError: pass\n    return got",
        "[]",
    ),
    "sockets of every family": (
        "import socket\ndef f():\n    got = []\n    for family in range(50):\n"
        "        for kind in (1, 2, 3, 5):\n"
        "            try: socket.socket(family, kind); got.append(family)\n"
        "            except OSError: pass\n    return got",
        "[]",
    ),
    "pairs of sockets that are not local": (
        "import socket\ndef f():\n    got = []\n    for family in (0, *range(2, 50)):\n"
        "        try: socket.socketpair(family); got.append(family)\n"
        "        except (OSError, ValueError): pass\n    return got",
        "[]",
    ),
    "name lookup": (
        "import socket\ndef f():\n    try: return socket.getaddrinfo('example.com', 80)\n"
        "    except OSError: return 'denied'",
        "'denied'",
    ),
    "abstract name for half of a pair": (
        "import ctypes, socket\ndef f():\n"
        "    try: (a, _), (b, _) = [socket.socketpair(type=socket.SOCK_DGRAM) for _ in 'ab']\n"
        "    except OSError: return 'denied'\n"
        "    for s in (a, b): ctypes.CDLL(None).connect(s.fileno(), bytes(2), 2)  # AF_UNSPEC: leave the "
        "pair\n"
        "    try: a.bind('\\0meet'); b.sendto(b'hello', '\\0meet'); return a.recv(9)\n"
        "    except OSError: return 'denied'",
        "'denied'",
    ),
    "doors of the host": (
        "import os\ndef f(): return [p for p in ('/run/docker.sock', '/var/run/docker.sock', '/run/dbus', "
        "'/home', '/root',\n"
        "    '/etc/shadow', '/work', '/var/lib/docker', '/host') if os.access(p, os.R_OK) and "
        "(os.path.isfile(p) or p[1:] and\n"
        "    not p.startswith('/home') and os.listdir(p))]",
        "[]",
    ),
    "memory of the others": (
        OTHERS + "def f(): return done(lambda pid: open(f'/proc/{pid}/mem', 'rb').close())",
        "[]",
    ),
    "environment and maps of the others": (
        OTHERS
        + "def f():\n    return [done(lambda pid: open(f'/proc/{pid}/{n}').read(1)) for n in ('environ', "
        "'maps', 'auxv')]",
        "[[], [], []]",
    ),
    "roots and descriptors of the others": (
        OTHERS
        + "def f():\n    return [done(lambda pid: os.listdir(f'/proc/{pid}/{n}')) for n in ('root', 'cwd', "
        "'fd', 'map_files')]",
        "[[], [], [], []]",
    ),
    "namespaces of the others": (
        OTHERS + "def f(): return done(lambda pid: os.open(f'/proc/{pid}/ns/pid', os.O_RDONLY))",
        "[]",
    ),
    "limits of the others": (
        OTHERS + "def f(): return done(lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0)))",
        "[]",
    ),
    "priority of the others": (
        OTHERS + "def f(): return done(lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19))",
        "[]",
    ),
    "CPUs of the others": (
        OTHERS + "def f(): return done(lambda pid: os.sched_setaffinity(pid, {0}))",
        "[]",
    ),
    "signals by process descriptor": (
        OTHERS
        + "def f(): return done(lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGSTOP))",
        "[]",
    ),
    "signals to whole groups": (
        OTHERS + "def f():\n    signal.signal(15, signal.SIG_IGN)\n"
        "    return done(lambda pid: os.killpg(pid, 15) if pid > 1 else os.listdir('/none'))",
        "[]",
    ),
    "signals by the owner of a descriptor": (
        # The sender's rights are checked when the signal is sent: the others live on, and the test ends well.
        OTHERS + "def f():\n    for pid in others:\n        a, b = os.pipe()\n"
        "        fcntl.fcntl(a, fcntl.F_SETSIG, 9)\n"
        "        try: fcntl.fcntl(a, fcntl.F_SETOWN, pid)\n        except OSError: continue\n"
        "        fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC)\n"
        "        os.write(b, b'x'); os.close(a); os.close(b)\n    return 'sent'",
        "'sent'",
    ),
    "capabilities": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nhead = (ctypes.c_uint32 * 2)(0x20080522, 0)\ndef f():\n"
        "    has = (ctypes.c_uint32 * 6)()\n    libc.capget(head, has)\n"
        "    more = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)\n"
        "    return sum(has), libc.capset(head, more), [libc.prctl(47, 2, n, 0, 0) for n in (6, 7, 21)]",
        "(0, -1, [-1, -1, -1])",
    ),
    "filter and privileges switched off": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "def f(): return libc.prctl(38, 0, 0, 0, 0), libc.prctl(39, 0, 0, 0, 0), libc.prctl(21)",
        "(-1, 1, 2)",
    ),
    "higher limits": (
        "import resource\ndef f():\n    got = []\n    for n in range(16):\n"
        "        soft, hard = resource.getrlimit(n)\n"
        "        if hard == -1: continue\n"
        "        try: resource.setrlimit(n, (hard + 1, hard + 1)); got.append(n)\n"
        "        except (OSError, ValueError): pass\n    return got",
        "[]",
    ),
    "set-uid programs": (
        "import glob, os, subprocess\ndef f():\n    got = []\n"
        "    for path in glob.glob('/bin/*') + glob.glob('/usr/s?in/*'):\n"
        "        if not os.path.islink(path) and os.stat(path).st_mode & 0o4000 and path.endswith(('/su', "
        "'/sudo', '/mount')):\n"
        "            ran = subprocess.run([path, '-c', 'id -u'] if 'su' in path else [path, '/x'], "
        "capture_output=True)\n"
        "            got += [path] * (ran.returncode == 0)\n    return got",
        "[]",
    ),
    "set-uid file of its own": (
        "import os, shutil\ndef f():\n    shutil.copy('/bin/true', 'a'); os.chmod('a', 0o6755)\n"
        "    try: os.chown('a', 0, 0); return 'owned'\n    except OSError: return 'denied'",
        "'denied'",
    ),
    "devices": (
        OPENED + "import glob\ndef f(): return opened('/dev/mem', '/dev/kmsg', '/dev/fuse', '/dev/kvm', "
        "'/dev/net/tun', '/dev/port',\n"
        "    '/dev/loop-control', '/dev/vsock', *glob.glob('/dev/[svnl][dvmo][abm0-9]*'), how=os.O_RDONLY)",
        "[]",
    ),
    "new device nodes": (
        "import os, stat\ndef f():\n    got = []\n"
        "    for kind in (stat.S_IFBLK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK):\n"
        "        try: os.mknod(f'n{kind}', kind | 0o666, os.makedev(1, 1)); got.append(kind)\n"
        "        except OSError: pass\n    return got",
        "[]",
    ),
    "knobs of the kernel": (
        OPENED + "def f(): return opened('/proc/sysrq-trigger', '/proc/sys/kernel/core_pattern', "
        "'/proc/kcore',\n"
        "    '/proc/sys/vm/overcommit_memory', '/sys/kernel/uevent_helper', '/proc/1/oom_score_adj', how=1)",
        "[]",
    ),
    "next process number": (
        "import os\ndef f():\n    try: return os.write(os.open('/proc/sys/kernel/ns_last_pid', "
        "os.O_WRONLY), b'30000')\n"
        "    except OSError: return 'denied'",
        "'denied'",
    ),
    "control groups": (
        OPENED + "import glob\ndef f():\n    try: os.mkdir('/sys/fs/cgroup/left'); return 'made'\n"
        "    except OSError: pass\n"
        "    return opened(*glob.glob('/sys/fs/cgroup/*') + glob.glob('/sys/fs/cgroup/*/*'), "
        "how=os.O_WRONLY)",
        "[]",
    ),
    "spared by the memory killer": (
        "def f():\n    try: open('/proc/self/oom_score_adj', 'w').write('-1000'); return 'spared'\n"
        "    except OSError: return 'denied'",
        "'denied'",
    ),
    "terminal of the host": (
        OPENED + "def f(): return opened('/dev/tty', '/dev/console', '/dev/pts/0', '/dev/tty0')",
        "[]",
    ),
    "inherited descriptors": (
        "import os\ndef f():\n    got = []\n    for fd in range(1024):\n"
        "        try: os.fstat(fd); got.append(fd)\n"
        "        except OSError: pass\n    return got",
        "[0, 1, 2, 11]",
    ),
    "links out of its directory": (
        "import os\ndef f():\n    for n, to in enumerate(('/', '/etc', '/jobs', '/opt/sparring', "
        "'/proc/1/root', '.')): os.symlink(to, str(n))\n"
        "    got = []\n    for n in range(5):\n        try: open(f'{n}/left', 'w'); got.append(n)\n"
        "        except OSError: pass\n"
        "    for path in ('/bin/sh', '/opt/sparring/runner/zygote.py'):\n"
        "        try: os.link(path, 'hard'); got.append(path)\n        except OSError: pass\n    return got",
        "[]",
    ),
    "its own directory replaced": (
        "import os\nhome = os.getcwd()\ndef f():\n    got = []\n"
        "    for act in (lambda: os.rmdir(home), lambda: os.rename(home, '/jobs/x'),\n"
        "                lambda: os.chown(home, -1, 0), lambda: os.symlink('/', '/jobs/y'), lambda: "
        "os.mkdir('/jobs/z')):\n"
        "        try: act(); got.append(1)\n        except OSError: pass\n    return got",
        "[]",
    ),
    "test's standard output": (
        OTHERS + "def f(): return done(lambda pid: open(f'/proc/{pid}/fd/1', 'w').write('x'))",
        "[]",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_escape(attack: Callable, name: str) -> None:
    program, *test, found = ATTACKS[name]
    verdict = attack(program, *(test or ["f()"]))
    assert verdict.status is Status.PASSED, verdict
    assert str(verdict.value) == found
