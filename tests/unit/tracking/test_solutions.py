"""The database of solutions: what is kept, in which order, and what a killed process leaves."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparring.tracking.solutions import Solution, SolutionDatabase, implementation

ROOT = Path(__file__).parents[3]
FLIP = "p=lambda g:g[::-1]"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "solutions.sqlite"


@pytest.fixture
def solutions(path):
    with SolutionDatabase(path) as opened:
        yield opened


def test_a_solution_comes_back_as_it_was_added(solutions):
    assert solutions.add("t", FLIP + " # é", pass_rate=1.0, step=12, found_at=5.5)
    (found,) = solutions.best("t")
    assert found == Solution("t", FLIP + " # é", 1.0, 23, 12, 5.5)
    assert solutions.best("other") == []


def test_the_time_is_now_unless_given(solutions):
    before = time.time()
    solutions.add("t", FLIP, pass_rate=1.0, step=1)
    assert before <= solutions.best("t")[0].found_at <= time.time()


def test_ranking(solutions):
    for program, rate in [("aaaa", 0.5), ("bbbbbb", 1.0), ("cc", 0.9), ("dddd", 1.0), ("eeee", 1.0)]:
        solutions.add("t", program, pass_rate=rate, step=1)
    ranked = [solution.program for solution in solutions.best("t", count=9)]
    assert ranked == ["dddd", "eeee", "bbbbbb", "cc", "aaaa"]
    assert [solution.program for solution in solutions.best("t", count=2)] == ranked[:2]


def test_one_implementation_is_kept_once_in_its_shorter_text(solutions):
    spaced, commented = "p = lambda g: g[::-1]\n", FLIP + "  # upside down"
    assert solutions.add("t", spaced, pass_rate=1.0, step=1)
    assert not solutions.add("t", commented + " and more", pass_rate=1.0, step=2)
    assert solutions.add("t", FLIP, pass_rate=1.0, step=3)
    assert not solutions.add("t", FLIP, pass_rate=1.0, step=4)
    assert not solutions.add("t", spaced, pass_rate=1.0, step=5)
    assert [(s.program, s.step) for s in solutions.best("t", 9)] == [(FLIP, 3)]
    assert solutions.add("u", spaced, pass_rate=1.0, step=6), "another problem"
    assert len(solutions.best("u", 9)) == 1


def test_of_one_implementation_the_better_judged_text_is_kept(solutions):
    """Tests may change between runs."""
    solutions.add("t", FLIP, pass_rate=0.5, step=1)
    assert solutions.add("t", FLIP + " ", pass_rate=1.0, step=2)
    assert not solutions.add("t", FLIP, pass_rate=0.5, step=3)
    assert [s.pass_rate for s in solutions.best("t", 9)] == [1.0]


def test_a_run_that_goes_on_from_before_a_better_text_has_the_one_that_it_had(solutions):
    for step, layout in ((3, "p  =  lambda g: g[::-1]"), (7, FLIP + " "), (7, FLIP)):
        assert solutions.add("t", layout, pass_rate=1.0, step=step)
    assert [s.program for s in solutions.best("t", 9)] == [FLIP]
    solutions.forget_after(5)
    assert [(s.program, s.step) for s in solutions.best("t", 9)] == [("p  =  lambda g: g[::-1]", 3)]


def test_implementations():
    assert implementation("x=1 # a") == implementation("\n\nx = (1)")
    assert implementation("x=1") != implementation("x=2") != implementation("y=2")
    assert implementation("no python") == implementation(" no python\n") != implementation("no  python")
    assert implementation("-" * 100_000 + "1") != implementation("\0")


def test_ranking_uses_the_index(solutions):
    asked: list[str] = []
    solutions._connection.set_trace_callback(asked.append)
    solutions.best("t")
    plan = solutions._connection.execute(f"EXPLAIN QUERY PLAN {asked[0]}").fetchall()
    assert plan[0][3] == "SEARCH one USING INDEX ranking (problem_id=?)"


def test_readers_see_what_another_connection_adds(path, solutions):
    with SolutionDatabase(path) as reader, SolutionDatabase(path) as second:
        solutions.add("t", FLIP, pass_rate=1.0, step=1)
        assert reader.best("t") == second.best("t") == solutions.best("t") != []


def test_many_may_write_at_once(path):
    def write(number: int) -> None:
        with SolutionDatabase(path) as mine:
            for step in range(20):
                mine.add("t", f"x={number * 100 + step}", pass_rate=1.0, step=step)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    with SolutionDatabase(path) as reader:
        assert len(reader.best("t", 99)) == 80


WRITER = """
import sys
from sparring.tracking.solutions import SolutionDatabase
solutions = SolutionDatabase(sys.argv[1])
for step in range(10**6):
    solutions.add("t", f"x={step}", pass_rate=1.0, step=step)
    print(step, flush=True)
"""


def test_a_killed_process_leaves_what_it_had_added(path):
    command = [sys.executable, "-c", WRITER, str(path)]
    writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(50):
        told = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    told = max([told, *(int(line) for line in writer.communicate()[0].split("\n")[:-1])])
    with SolutionDatabase(path) as reader:
        steps = {solution.step for solution in reader.best("t", 10**6)}
        assert steps >= set(range(told + 1))
        assert reader.add("t", FLIP, pass_rate=1.0, step=0)


def test_another_file_is_not_written_to(tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("these are my notes, and they are longer than a header " * 10)
    with pytest.raises(ValueError, match=r"notes\.txt: no database of solutions \(file is not a database\)"):
        SolutionDatabase(other)
    assert other.read_text().startswith("these are my notes")
    with pytest.raises(ValueError, match="no database of solutions"):
        SolutionDatabase(tmp_path)
