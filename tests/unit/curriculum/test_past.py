"""What is remembered of mistakes, for how long, and who meets it."""

import json
from collections import Counter

from sparring.core.episode import Mistakes
from sparring.curriculum.curriculum import Curriculum, Phase, Schedule
from sparring.curriculum.past import MistakeBook, WrongPrograms

SCHEDULE = Schedule(
    stages=(1,),
    n_discriminator_steps=2,
    n_generator_steps=2,
    k_alternating_steps=2,
    remembered_tests=2,
    remembered_wrong_programs=1,
)
MISTAKES = {"p": Mistakes(programs=("wrong",), tests={"f(1)": True, "f(2)": True, "f(3)": True})}


def test_a_test_gains_by_a_failure_loses_by_a_pass_and_is_forgotten_at_0():
    book = MistakeBook(2)
    book.observe("p", {"f(1)": True, "f(2)": True})
    book.observe("p", {"f(1)": False, "f(2)": True})
    assert book.tests("p") == ("f(2)",)
    for _ in range(2):
        assert book.tests("p") == ("f(2)",)
        book.observe("p", {"f(2)": False})
    assert book.tests("p") == () and book.state_dict() == {}


def test_a_full_book_keeps_the_worst_mistakes_and_of_equal_ones_the_older():
    book = MistakeBook(2)
    book.observe("p", {"f(1)": True, "f(2)": True, "f(3)": True})
    book.observe("p", {"f(4)": True, "f(2)": True})
    assert book.tests("p") == ("f(2)", "f(1)")
    assert book.tests("another") == ()


def test_a_test_that_all_passed_does_not_enter():
    book = MistakeBook(2)
    book.observe("p", {"f(1)": False})
    assert book.tests("p") == ()


def test_wrong_programs_of_all_times_are_kept_equally_often():
    """40 programs come one after another, each seen as often as it likes; each is among the 8 kept about 1 time in 5."""
    kept = Counter[str]()
    for seed in range(300):
        bank = WrongPrograms(8, seed)
        for number in range(40):
            bank.observe("p", [f"program {number}", "program 0"])
        assert len(bank.programs("p")) == 8
        kept.update(bank.programs("p"))
    early, late = (
        sum(kept[f"program {n}"] for n in numbers) / 20 / 300 for numbers in (range(20), range(20, 40))
    )
    assert 0.17 < early < 0.23 and 0.17 < late < 0.23
    assert max(kept.values()) < 0.32 * 300


def test_what_is_kept_does_not_depend_on_the_order():
    one, other = WrongPrograms(3, 1), WrongPrograms(3, 1)
    programs = [f"program {number}" for number in range(10)]
    one.observe("p", programs)
    for program in reversed(programs):
        other.observe("p", [program])
    assert one.programs("p") == other.programs("p")


def test_who_learns_meets_the_others_past():
    curriculum = Curriculum(SCHEDULE, ["p"], seed=1)
    tests, wrong = {"discriminator": ("f(1)", "f(2)")}, {"generator": ("wrong",)}
    met = {Phase.DISCRIMINATOR: wrong, Phase.GENERATOR: tests, Phase.ALTERNATING: tests | wrong}
    assert curriculum.next().past == {}
    curriculum.observe(1, {}, MISTAKES)
    while (assignment := curriculum.next()) is not None:
        assert assignment.past == {"p": met[assignment.phase]}
        curriculum.observe(assignment.step, {}, {})


def test_without_the_keys_nothing_is_remembered():
    forgetful = SCHEDULE.model_copy(update={"remembered_tests": 0, "remembered_wrong_programs": 0})
    curriculum = Curriculum(forgetful, ["p"], 1)
    curriculum.observe(1, {}, MISTAKES)
    assert curriculum.next().past == {}
    state = curriculum.state_dict()
    assert state["mistake_book"] == {} and state["wrong_programs"] == {}


def test_a_resumed_curriculum_remembers_the_same():
    first, second = (Curriculum(SCHEDULE, ["p"], seed=1) for _ in range(2))
    first.observe(1, {}, MISTAKES)
    first.observe(2, {}, {"p": Mistakes(tests={"f(2)": True})})
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.next() == first.next() and second.next().past == {"p": {"discriminator": ("f(2)", "f(1)")}}
    later = {"p": Mistakes(programs=("another", "third"), tests={"f(2)": False, "f(1)": False})}
    for curriculum in (first, second):
        curriculum.observe(3, {}, later)
    assert second.state_dict() == first.state_dict()
