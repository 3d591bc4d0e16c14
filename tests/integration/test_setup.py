"""`make setup`'s two scripts on stand-ins for slow tools: cut off at any moment, called again, on a full disk."""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]

# Makes an environment whose interpreter is itself, and a pip that writes down how it was called. Where DIR/slow names
# the tool, it starts a child and sleeps: a stand-in can only be cut off there.
SLOW = 'if grep -qsx "{tool}" {dir}/slow; then touch {dir}/reached; sleep 600 & sleep 600; fi\n'
PYTHON = """#!/bin/bash
case "$*" in
"-m venv "*)
    echo venv >>{dir}/calls
    mkdir -p "$3/bin" "$3/lib/python3.11/site-packages"
    {slow_venv}
    touch "$3/pyvenv.cfg"
    cp "$0" "$3/bin/python" ;;
"-m pip install"*)
    echo "${{@:3}}" >>{dir}/calls
    {slow_pip}
    if [ -e {dir}/full ]; then echo 1 >{dir}/free; echo "No space left on device" >&2; exit 1; fi ;;
*) exec {real} "$@" ;;
esac
"""
DF = """#!/bin/bash
printf 'Filesystem 1M-blocks Used Available Capacity Mounted\\nx 1 1 %s 1%% /\\n' "$(cat {dir}/free)"
"""
DOCKER = """#!/bin/bash
case "$1 $2" in
"version "*) [ ! -e {dir}/no_engine ] ;;
"image inspect") grep -qsxF "$3" {dir}/images ;;
"pull "*) {slow_pull} exit 1 ;;
"import "*) test -s "$4" && echo "$5" >>{dir}/images ;;
"build "*)
    cat >/dev/null
    {slow_build}
    if [ -e {dir}/unbuildable ]; then echo "no such package" >&2; exit 1; fi
    while [ "$1" != -t ]; do shift; done
    echo "$2" >>{dir}/images ;;
esac
"""
DEBOOTSTRAP = '#!/bin/bash\necho half >"$4/half"\n{slow_debootstrap}\nrm "$4/half"; echo whole >"$4/whole"\n'
DOCKERD = "#!/bin/bash\ntouch {dir}/reached\nexec sleep 600\n"


@dataclass
class Machine:
    """A copy of the scripts and locks, with stand-ins first on its PATH."""

    directory: Path
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """In the environment of every process that a test starts."""

    @property
    def tree(self) -> Path:
        return self.directory / "tree"

    @property
    def venv(self) -> Path:
        return self.directory / "venv"

    @property
    def engine(self) -> Path:
        return self.directory / "engine"

    def put(self, name: str, text: str) -> None:
        path = self.directory / "bin" / name
        tools = ("venv", "pip", "pull", "build", "debootstrap")
        slow = {f"slow_{tool}": SLOW.format(tool=tool, dir=self.directory) for tool in tools}
        path.write_text(text.format(dir=self.directory, real=sys.executable, **slow))
        path.chmod(0o755)

    def write(self, name: str, text: str = "") -> None:
        (self.directory / name).write_text(text)

    def lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.tree / command[0]), *command[1:]],
            env={**self.environment(), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def environment(self) -> Mapping[str, str]:
        return {
            "PATH": f"{self.directory / 'bin'}:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.directory),
            "SPARRING_ENGINE_DIR": str(self.engine),
            "TOKEN": self.token,
        }

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*command, **environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def install(self, lock: str = "cpu", **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("requirements/install.sh", str(self.venv), lock, **environment)

    def cut_off(self, tool: str, number: signal.Signals, *command: str) -> str:
        """Sends the signal, as a terminal does, while the tool is at work; what the script then says."""
        self.write("slow", tool + "\n")
        process = self.start(*command)
        deadline = time.monotonic() + 30
        while not (self.directory / "reached").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, f"{tool} was never called"
            time.sleep(0.01)
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        until = time.monotonic() + 10
        while left := self.left_running():
            assert time.monotonic() < until, left
            time.sleep(0.1)
        (self.directory / "slow").unlink()
        (self.directory / "reached").unlink()
        return err

    def left_running(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TOKEN") == self.token and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue  # another user's, or gone
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("requirements", "docker", "sandbox_workers/runner"):
        shutil.copytree(ROOT / name, machine.tree / name)
    machine.write("free", "90000")
    machine.put("python3.11", PYTHON)
    machine.put("df", DF)
    machine.put("docker", DOCKER)
    machine.put("debootstrap", DEBOOTSTRAP)
    machine.put("dockerd", DOCKERD)
    machine.put("id", "#!/bin/bash\necho 0\n")
    yield machine
    for process in machine.left_running():
        process.kill()


def test_torch_comes_first_and_the_lock_as_it_is_once(machine: Machine) -> None:
    assert machine.install(TORCH_INDEX="--index-url file:///wheels").returncode == 0
    venv, torch, rest = machine.lines("calls")
    assert venv == "venv"
    assert torch.endswith("--index-url file:///wheels -c requirements/cpu.lock torch")
    assert rest.endswith("--no-deps -r requirements/cpu.lock -r requirements/dev.lock")
    again = machine.install()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(machine.lines("calls")) == 3


def test_a_changed_lock_is_installed_in_the_same_environment(machine: Machine) -> None:
    machine.install()
    with (machine.tree / "requirements" / "dev.lock").open("a") as lock:
        lock.write("more==1\n")
    assert machine.install().returncode == 0
    assert machine.lines("calls").count("venv") == 1 and len(machine.lines("calls")) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("tool", ["venv", "pip"])
def test_set_up_that_was_cut_off_goes_on(machine: Machine, tool: str, number: signal.Signals) -> None:
    said = machine.cut_off(tool, number, "requirements/install.sh", str(machine.venv), "cpu")
    assert said == "set-up was interrupted: the next make goes on from here\n"
    assert not (machine.venv / "tmp").exists()
    assert machine.install().returncode == 0
    assert machine.lines("calls").count("venv") == (2 if tool == "venv" else 1)
    assert machine.install().stdout == ""


def test_a_half_installed_package_is_installed_again(machine: Machine) -> None:
    machine.cut_off("pip", signal.SIGINT, "requirements/install.sh", str(machine.venv), "cpu")
    site = machine.venv / "lib" / "python3.11" / "site-packages"
    for package in ("whole-1.dist-info", "half-1.dist-info", "~umpy", "numpy"):
        (site / package).mkdir()
        (site / package / "METADATA").touch()
    (site / "whole-1.dist-info" / "INSTALLER").write_text("pip\n")
    machine.install()
    assert sorted(p.name for p in site.iterdir()) == ["numpy", "whole-1.dist-info"]


def test_two_at_once_install_once(machine: Machine) -> None:
    machine.write("slow", "pip\n")
    first = machine.start("requirements/install.sh", str(machine.venv), "cpu")
    while not (machine.directory / "reached").exists():
        time.sleep(0.01)
    second = machine.start("requirements/install.sh", str(machine.venv), "cpu")
    assert second.stdout is not None and "waiting" in second.stdout.readline()
    (machine.directory / "slow").unlink()
    for process in machine.left_running():
        if process.name() == "sleep":
            process.kill()  # the first one's pip ends
    first.communicate(timeout=30)
    second.communicate(timeout=30)
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(machine.lines("calls")) == 3


def test_another_lock_takes_a_new_environment(machine: Machine) -> None:
    machine.install("cpu")
    machine.install("gpu")
    assert machine.lines("calls").count("venv") == 2


def test_a_broken_environment_is_made_anew(machine: Machine) -> None:
    machine.install()
    (machine.venv / "bin" / "python").unlink()
    (machine.venv / "bin" / "python").symlink_to("/nowhere/python3.11")
    assert machine.install().returncode == 0
    assert machine.lines("calls").count("venv") == 2


def test_an_environment_without_pip_is_made_anew(machine: Machine) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(machine.venv)], check=True)
    assert machine.install().returncode == 0
    assert machine.lines("calls").count("venv") == 1


def test_another_version_that_is_asked_for_takes_a_new_environment(machine: Machine) -> None:
    machine.install()
    assert machine.install(PYTHON="python3.11").stdout == ""
    version = '#!/bin/bash\ncase "$*" in *%d.%d*) echo 3.99 ;; *) exec {dir}/bin/python3.11 "$@" ;; esac\n'
    machine.put("other", version)
    assert "with Python 3.99" in machine.install(PYTHON="other").stdout
    assert machine.lines("calls").count("venv") == 2


def test_the_first_python_that_fits_is_taken(machine: Machine) -> None:
    machine.put("python3.11", "#!/bin/bash\nexit 127\n")  # pyenv's way to say that it is not there
    machine.put("python3.12", PYTHON)
    assert machine.install().returncode == 0
    assert "python3.12" not in machine.install().stderr
    assert machine.lines("calls")[0] == "venv"


def test_without_a_python_that_fits_one_line_says_how_to_get_one(machine: Machine) -> None:
    for name in ("python3.11", "python3.12", "python3.13", "python3", "python"):
        machine.put(name, "#!/bin/bash\nexit 1\n")
    ended = machine.install()
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1
    assert "3.11, 3.12 or 3.13" in ended.stderr and "uv python install 3.12" in ended.stderr
    assert "python3.11 is another" in machine.install(PYTHON="python3.11").stderr


def test_a_python_without_venv_names_the_package(machine: Machine) -> None:
    for name in ("python3.12", "python3.13", "python3", "python"):
        machine.put(name, "#!/bin/bash\nexit 1\n")
    machine.put("python3.11", '#!/bin/bash\n[[ "$*" != *ensurepip* ]] && exec {real} "$@"\n')
    ended = machine.install()
    version = "{}.{}".format(*sys.version_info)
    assert ended.returncode == 1
    assert (
        ended.stderr
        == f"error: python3.11 cannot make virtual environments: apt install python{version}-venv\n"
    )


def test_a_directory_that_is_no_environment_is_left_alone(machine: Machine) -> None:
    machine.venv.mkdir()
    (machine.venv / "thesis.tex").touch()
    ended = machine.install()
    assert ended.returncode == 1 and "is no virtual environment" in ended.stderr
    assert [p.name for p in machine.venv.iterdir()] == ["thesis.tex"]


def test_a_full_disk_is_seen_before_anything_is_made(machine: Machine) -> None:
    machine.write("free", "2000")
    ended = machine.install()
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1
    assert "2000 MB are free" in ended.stderr and "VENV=" in ended.stderr
    assert machine.lines("calls") == []
    machine.write("free", "4000")
    assert "TORCH_INDEX" in machine.install().stderr
    assert machine.install(TORCH_INDEX="--index-url file:///wheels").returncode == 0


def test_a_small_file_system_is_refused(machine: Machine) -> None:
    (machine.directory / "bin" / "df").unlink()
    machine.venv.mkdir()
    mount = (
        f"mount -t tmpfs -o size=8m none {machine.venv} && exec requirements/install.sh {machine.venv} cpu"
    )
    isolated = ["unshare", "--mount", "sh", "-c", mount]
    ended = subprocess.run(
        isolated, cwd=machine.tree, env=machine.environment(), capture_output=True, text=True
    )
    if "unshare" in ended.stderr or "mount:" in ended.stderr:
        pytest.skip("mounting is not allowed here")
    assert ended.returncode == 1 and "8 MB are free" in ended.stderr


def test_a_disk_that_fills_up_is_named_and_the_next_call_goes_on(machine: Machine) -> None:
    machine.write("full")
    ended = machine.install()
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"error: no space left in {machine.venv}")
    assert not (machine.venv / "tmp").exists()
    (machine.directory / "full").unlink()
    machine.write("free", "90000")
    assert machine.install().returncode == 0
    assert machine.lines("calls").count("venv") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("tool", ["pull", "debootstrap", "build"])
def test_an_image_that_was_cut_off_is_built_by_the_next_call(
    machine: Machine, tool: str, number: signal.Signals
) -> None:
    said = machine.cut_off(tool, number, "docker/engine.sh", "image")
    assert said == "engine.sh: interrupted; the next call does this step again\n"
    assert not list(machine.engine.glob("rootfs.*"))
    built = machine.run("docker/engine.sh", "image")
    assert built.returncode == 0, built.stderr
    (tarball,) = machine.engine.glob("*.tar")
    names = subprocess.run(["tar", "-tf", tarball], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(names) == ["./", "./whole"]
    assert "is up to date" in machine.run("docker/engine.sh", "image").stdout


def test_what_a_killed_call_left_is_cleared_away(machine: Machine) -> None:
    (machine.engine / "rootfs.killed").mkdir(parents=True)
    (machine.engine / "half.tar.part").touch()
    assert machine.run("docker/engine.sh", "image").returncode == 0
    assert not list(machine.engine.glob("rootfs.*"))


def test_an_engine_that_was_starting_is_stopped_by_ctrl_c(machine: Machine) -> None:
    machine.write("no_engine")
    machine.cut_off("dockerd", signal.SIGINT, "docker/engine.sh", "start")


def test_set_up_goes_on_without_an_image_that_cannot_be_built(machine: Machine) -> None:
    machine.write("unbuildable")
    ended = machine.run("docker/engine.sh", "setup")
    assert ended.returncode == 0
    assert ended.stderr.startswith("engine.sh: docker build failed: no such package; going on")
    assert machine.run("docker/engine.sh", "image").returncode == 1


def test_set_up_without_an_engine_says_so(machine: Machine) -> None:
    machine.write("no_engine")
    ended = machine.run("docker/engine.sh", "setup")
    assert ended.returncode == 0 and ended.stderr == ""
    assert "no Docker Engine answers" in ended.stdout and ended.stdout.count("\n") == 1
