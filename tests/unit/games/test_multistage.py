import asyncio
from dataclasses import replace

import pytest
from pydantic import ValidationError

from sparring.core.episode import Episode, Mistakes
from sparring.core.interfaces import Branching
from sparring.core.verdict import Status
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rewards import RewardRules
from sparring.games.multistage.rules import MultistageRules
from sparring.tracking.runs import BECAME
from tests.playing import Letters, by_player, player, sample_of

RIGHT = "def f(n): return n + n"
WRONG_AT_3 = "def f(n): return 7 if n == 3 else n * 2"
WRONG = "def f(n): return 1 / 0"
BROKEN_SYNTAX = "def f(n) return"


def rewards(episode, player):
    return [t.reward for t in by_player(episode, player)]


def components(episode, attempt=0):
    return by_player(episode, "discriminator")[attempt].components


def told(trajectory):
    return [(o.test, o.status, o.error) for o in trajectory.outcomes]


# ---------------------------------------------------------------------- the play
def test_an_attempt_is_five_turns_whose_prompts_extend_each_other(table):
    episode = table.play([RIGHT], ["assert f(1) == 2"])
    program, suite = episode.trajectories
    assert [turn.stage for turn in program.turns] == [1, 2, 3, 4, 5]
    assert [turn.text for turn in program.turns[:2]] == ["thought 1 of attempt 0", "thought 2 of attempt 0"]
    assert program.artifact == RIGHT
    assert [turn.stage for turn in suite.turns] == [0]
    sample = sample_of(program, stages=(2,))
    assert sum(sample.sampled) == program.token_count
    assert sum(sample.trained) == len(program.turns[1].completion.tokens)


def valid_tests(episode: Episode) -> list[list[str]]:
    suites = by_player(episode, "discriminator")
    return [[o.test for o in suite.outcomes if o.status == "valid"] for suite in suites]


def test_attempts_that_branch_share_their_turns_up_to_there(table):
    """Two prefixes, two branches of each at stage 3, two continuations of each branch."""
    branching = Branching(stage=3, branches=2, continuations=2)
    episode = table.play([RIGHT] * 8, ["assert f(1) == 2"], branching=branching)
    programs = episode.judged("generator")
    assert [p.place for p in programs] == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (1, 3), (1, 3)]
    for stage, nodes in zip(range(1, 6), (2, 2, 4, 8, 8), strict=True):
        turns = [p.turns[stage - 1] for p in programs]
        assert len({turn.text for turn in turns[:8]}) == (nodes if stage < 5 else 1)
        assert [t.prompt_tokens == turns[0].prompt_tokens for t in turns].count(True) >= 8 // nodes
        assert len({id(turn) for turn in turns}) == nodes, "sampled once for all that share it"
    assert episode.judged("discriminator")[0].place is None


@pytest.mark.parametrize("count", range(5))
def test_stages_can_be_left_out_before_the_program(table, count):
    episode = table.play([RIGHT], ["assert f(1) == 2"], stages=count)
    turns = episode.trajectories[0].turns
    assert [turn.stage for turn in turns] == [*range(1, count + 1), 5]
    assert "".join(map(chr, turns[0].prompt_tokens)) == ("Return n doubled.?" + "5" * (count == 0))
    assert turns[-1].prompt_tokens[-1] == ord("5")
    assert rewards(episode, "generator") == [1.0]


def test_the_program_is_taken_out_of_its_fence(table):
    episode = table.play([f"Here you are:\n```python\n{RIGHT}\n```"], ["assert f(1) == 2"])
    assert episode.trajectories[0].artifact == f"{RIGHT}\n"
    assert rewards(episode, "generator") == [1.0]


def test_every_program_meets_every_suite(table):
    episode = table.play(
        [RIGHT, WRONG_AT_3], ["assert f(1) == 2\nassert f(3) == 6", "assert f(3) == 6\nassert f(4) == 8"]
    )
    # the tests of both suites: f(1), f(3), f(4), of which WRONG_AT_3 fails one
    assert rewards(episode, "generator") == pytest.approx([1.0, 2 / 3])
    # per suite: RIGHT fails 0 of 2, WRONG_AT_3 1 of 2
    assert rewards(episode, "discriminator") == pytest.approx([0.25, 0.25])
    assert valid_tests(episode) == [
        ["assert f(1) == 2", "assert f(3) == 6"],
        ["assert f(3) == 6", "assert f(4) == 8"],
    ]


@pytest.mark.parametrize("program", [WRONG, BROKEN_SYNTAX, "", "no code at all"])
def test_a_program_that_cannot_run_fails_every_test(table, program):
    episode = table.play([program, RIGHT], ["assert f(1) == 2\nassert f(3) == 6"])
    assert rewards(episode, "generator") == [0.0, 1.0]
    assert rewards(episode, "discriminator") == [0.5]


def test_without_partial_credit_a_program_earns_by_passing_everything(table):
    suite = "assert f(1) == 2\nassert f(3) == 6"
    programs = [WRONG_AT_3, RIGHT]
    shared = table.play(programs, [suite])
    whole = table.play(programs, [suite], rewards=RewardRules(partial_credit="never"))
    assert (rewards(shared, "generator"), rewards(whole, "generator")) == ([0.5, 1.0], [0.0, 1.0])
    assert rewards(shared, "discriminator") == rewards(whole, "discriminator")


def test_partial_credit_for_programs_that_pass_the_baseline_tests(table):
    programs = [RIGHT, WRONG_AT_3, "def f(n):\n    return n + 2"]  # the last one is right for 2 only
    suite = "assert f(2) == 4\nassert f(3) == 6"
    earned = [
        rewards(table.play(programs, [suite], baseline_in_reward=True, rewards=rules), "generator")
        for rules in (RewardRules(), RewardRules(partial_credit="baseline_passed"))
    ]
    assert earned == [pytest.approx([1.0, 2 / 3, 1 / 3]), pytest.approx([1.0, 2 / 3, 0.0])]


def test_partial_credit_by_the_baseline_tests_needs_them_in_the_reward():
    with pytest.raises(ValidationError, match=r"needs game\.baseline_in_reward"):
        MultistageRules(rewards=RewardRules(partial_credit="baseline_passed"))


# ---------------------------------------------------------------------- validity
@pytest.mark.parametrize("test_format", ["strict", "relabel", "input_only"])
def test_a_test_that_the_prompt_shows_is_no_valid_test(table, test_format):
    """Else a discriminator would earn most by copying an example, which says nothing new of any program."""
    table.problem = replace(
        table.problem, description="Return n doubled, for example f(7) -> 14 and f(0) -> 0."
    )
    calls = ["f(0) == 0", "f(n=7) == 14", "f(3) == 6"]
    suite = "\n".join(c.partition(" ")[0] if test_format == "input_only" else f"assert {c}" for c in calls)
    episode = table.play([WRONG_AT_3], [suite], test_format=test_format)
    parts = components(episode)
    assert (parts["emitted"], parts["valid"], parts["fault_shown"]) == (3, 1, 2)
    assert [o.status for o in episode.judged("discriminator")[0].outcomes] == ["shown", "shown", "valid"]
    assert parts["validity"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("suite", "became"),
    [
        (["f(3) == 6", "f(3)==6", "f(1) == 5", "f(n) == 2"], "valid duplicate rejected literal"),
        # two outputs for one input
        (["f(3) == 5", "f(3) == 6"], "rejected duplicate"),
        # an input counts once, whatever it is asserted with
        ([f"f(3) == 6 and f({n}) == {2 * n}" for n in (1, 2, 4)], "valid duplicate duplicate"),
        # a duplicate uses up no input
        (["f(1) == 2 and f(2) == 4", "f(2) == 4 and f(3) == 6", "f(3) == 6"], "valid duplicate valid"),
        # nonsense passes these
        (["f(1) == f(1)", "f(2) or True", "f(3) != 5", "f(5) == 10", "f(6)"], "weak weak weak valid valid"),
    ],
)
def test_only_valid_tests_that_repeat_no_other_count(table, suite, became):
    (found,) = table.play([RIGHT], ["\n".join(f"assert {test}" for test in suite)]).judged("discriminator")
    statuses, parts = [o.status for o in found.outcomes], found.components
    assert statuses == became.split() and set(statuses) <= BECAME.keys()
    assert (parts["valid"], parts["duplicates"]) == (statuses.count("valid"), statuses.count("duplicate"))
    assert parts["fault_rejected"] == statuses.count("rejected") + statuses.count("weak")
    assert parts["fault_literal"] == statuses.count("literal")
    assert parts["validity"] == parts["valid"] / len(suite)


@pytest.mark.parametrize("digits", ["9" * 320, "1e400", "-1e400"])
def test_no_number_that_is_stated_for_a_float_is_too_large(table, digits):
    table.problem = replace(table.problem, reference_solution="def f(n): return n * 0.5")
    parts = components(table.play([RIGHT], [f"assert f(1) == {digits}"], test_format="relabel"))
    assert (parts["valid"], parts["wrong_outputs"]) == (1, 1)


@pytest.mark.parametrize("value", ["...", "[1, ...]", "1e999", "-1e999", "{'a': 1e999}"])
@pytest.mark.parametrize("test_format", ["relabel", "strict"])
def test_an_expected_value_that_cannot_be_written_down_is_a_wrong_one(table, value, test_format):
    suite = f"assert f(1) == {value}\nassert f(2) == 4"
    parts = components(table.play([RIGHT], [suite], test_format=test_format))
    assert parts["valid"] == (2 if test_format == "relabel" else 1)


def test_floats_need_not_be_equal_to_the_last_digit(table):
    table.problem = replace(table.problem, reference_solution="def f(n): return n * 0.1 * 3")
    in_another_order, wrong = "def f(n): return n * 0.3", "def f(n): return n * 0.31"
    suite = "assert f(1) == 0.3\nassert f(2) == 7"
    episode = table.play([in_another_order, wrong], [suite], test_format="relabel")
    parts = components(episode)
    assert (parts["valid"], parts["wrong_outputs"]) == (2, 1)
    assert rewards(episode, "generator") == [1.0, 0.0]


@pytest.mark.parametrize(
    "reference",
    [
        "import random\ndef f(n): return random.randrange(10 ** 9)",
        "from random import random\ndef f(n): return [n, random()]",
        "def f(n, seen=[]):\n    seen.append(n)\n    return len(seen)",
    ],
)
def test_a_reference_that_depends_on_chance_or_on_earlier_calls_confirms_nothing(table, sandbox, reference):
    table.problem, table.sandbox = replace(table.problem, reference_solution=reference), sandbox
    assert components(table.play([], ["f(1)\nf(2)"], test_format="input_only"))["valid"] == 0


@pytest.mark.parametrize(
    ("suite", "reward"), [("", -1.0), ("gibberish, more", -1.0), ("assert f(1) == 5", 0.0)]
)
def test_unparseable_is_punished_and_invalid_earns_nothing(table, suite, reward):
    episode = table.play([RIGHT], [suite])
    assert rewards(episode, "discriminator") == [reward]
    assert rewards(episode, "generator") == [None]
    assert episode.trajectories[0].components == {"no_valid_test": 1.0}


def test_tests_beyond_the_maximum_are_not_run_and_lower_the_validity(table):
    """Else a policy learns to write on and on: the first four cost nothing by it, and all else is free."""
    suite = "\n".join(f"assert f({i}) == {2 * i}" for i in range(1, 10))
    parts = components(table.play([RIGHT], [suite], max_tests=4))
    assert (parts["emitted"], parts["valid"], parts["fault_surplus"]) == (9, 4, 5)
    assert parts["validity"] == pytest.approx(4 / 9)
    asked = {test for _, tests, _ in table.sandbox.jobs for test in tests}
    assert not any("f(5)" in test for test in asked)


def test_the_example_with_which_a_chat_answer_begins_is_no_test_of_the_suite(table):
    game = MultistageGame(MultistageRules(test_format="relabel"))
    prompts = []

    def says(prompt, sampling):
        prompts.append(prompt)
        return "3) == 6\nassert f(0) == 0\n```"

    discriminator = player("discriminator", says, format=Letters(full=True))
    suite = asyncio.run(game.attack(table.problem, discriminator, 0))
    assert prompts[0].endswith("```python\nassert f(0) == 0\nassert f(")
    assert suite.artifact == "```python\nassert f(3) == 6\nassert f(0) == 0\n```"
    [record] = asyncio.run(
        game.judge_suites(table.problem, [suite.artifact], table.sandbox, style=discriminator.format)
    )
    assert (record.emitted, record.repeated) == (2, 1), "the copy that the model itself wrote is counted"


def test_a_suite_of_faults_never_reaches_the_sandbox(table):
    table.play([RIGHT], ["assert f(open('x')) == 1\nassert f('a') == 'aa'\nnot a test"])
    assert all(tests == () for _, tests, _ in table.sandbox.jobs)


# ---------------------------------------------------------------------- the formats
def test_relabel_takes_the_references_output_and_charges_for_the_wrong_one(table):
    episode = table.play([WRONG_AT_3], ["assert f(3) == 99\nassert f(1) == 2"], test_format="relabel")
    assert told(episode.judged("discriminator")[0]) == [
        ("assert f(3) == 6", "valid", "written as assert f(3) == 99"),
        ("assert f(1) == 2", "valid", ""),
    ]
    parts = components(episode)
    assert (parts["valid"], parts["wrong_outputs"]) == (2, 1)
    assert parts["validity"] == pytest.approx((2 - 0.5) / 2)
    assert rewards(episode, "discriminator") == pytest.approx([0.5 * 0.75])


def test_input_only_asks_the_reference_for_the_output(table):
    episode = table.play([WRONG_AT_3], ["f(3)\nf(1)"], test_format="input_only")
    assert valid_tests(episode) == [["assert f(3) == 6", "assert f(1) == 2"]]
    assert components(episode)["wrong_outputs"] == 0
    assert rewards(episode, "discriminator") == pytest.approx([0.5])


# ---------------------------------------------------------------------- infrastructure
def test_a_program_the_sandbox_fails_on_is_dropped_and_the_others_are_rewarded(table):
    table.sandbox.broken = {WRONG}
    episode = table.play([WRONG, RIGHT, WRONG_AT_3], ["assert f(1) == 2\nassert f(3) == 6"])
    assert rewards(episode, "generator") == [None, 1.0, 0.5]
    assert rewards(episode, "discriminator") == [0.25]
    assert [t.attempt for t in episode.dropped()] == [0]
    assert [t.attempt for t in episode.judged("generator")] == [1, 2]
    assert episode.trajectories[0].components == {"sandbox_failure": 1.0}
    assert [bool(t.outcomes) for t in episode.trajectories[:3]] == [False, True, True]


@pytest.mark.parametrize(("baseline", "reward"), [(False, None), (True, 1.0)])
def test_a_sandbox_failure_in_validation_leaves_the_baseline_tests_only(table, baseline, reward):
    table.sandbox.broken = {table.problem.reference_solution}
    episode = table.play([RIGHT], ["assert f(1) == 2"], baseline_in_reward=baseline)
    assert rewards(episode, "discriminator") == [None]
    assert valid_tests(episode) == [[]]
    assert rewards(episode, "generator") == [reward]


# ---------------------------------------------------------------------- guards
def test_a_timeout_where_the_reference_is_slow_too_counts_for_nobody(table):
    slow, quick = "assert f(1) == 2", "assert f(2) == 4"
    table.sandbox.cpu_ms = {slow: 900.0, quick: 10.0}
    table.sandbox.statuses = dict.fromkeys([(WRONG, slow), (WRONG, quick)], Status.TIME_LIMIT)
    episode = table.play([WRONG, RIGHT], [f"{slow}\n{quick}"])
    assert rewards(episode, "generator") == [0.0, 1.0]  # of the one test that counts
    assert components(episode)["pass_rate"] == 0.5
    assert [o.counts for o in episode.trajectories[0].outcomes] == [False, True]


def test_a_test_that_counts_for_no_program_earns_no_validity(table):
    """Else a suite of tests on which the reference itself is slow would be paid for being valid."""
    slow, quick = "assert f(1) == 2", "assert f(2) == 4"
    table.sandbox.cpu_ms = {slow: 900.0}
    table.sandbox.statuses = {(program, slow): Status.TIME_LIMIT for program in (WRONG, WRONG_AT_3)}
    rules = RewardRules(validity_slots=2, validity_weight=0.5)
    parts = components(table.play([WRONG, WRONG_AT_3], [f"{slow}\n{quick}"], rewards=rules))
    assert (parts["valid"], parts["fault_silent"], parts["validity"]) == (1, 1, 0.5)


def test_tests_that_nobody_passes_earn_a_fifth_unless_a_remembered_program_passes_them(table):
    assert rewards(table.play([WRONG], ["assert f(1) == 2"]), "discriminator") == pytest.approx([0.2])
    episode = table.play([WRONG], ["assert f(1) == 2"], memory=[BROKEN_SYNTAX, RIGHT])
    assert rewards(episode, "discriminator") == [1.0]
    assert rewards(episode, "generator") == [0.0]


def test_the_memory_is_not_run_where_a_current_program_passes(table):
    table.play([RIGHT], ["assert f(1) == 2"], memory=["def f(n): return 'remembered'"])
    assert not any("remembered" in program for program, _, _ in table.sandbox.jobs)


def test_the_gate_is_lifted_for_each_suite_by_its_own_tests(table):
    """One suite is passed by a current program, the other one only by a remembered one."""
    only_1 = "def f(n): return 2 if n == 1 else None"
    episode = table.play([only_1], ["assert f(1) == 2", "assert f(3) == 6"], memory=[RIGHT])
    assert [components(episode, i)["gate"] for i in (0, 1)] == [1.0, 1.0]


def test_a_passed_baseline_test_does_not_keep_the_memory_out(table):
    only_0 = "def f(n): return 0"
    episode = table.play([only_0], ["assert f(3) == 6"], memory=[RIGHT], baseline_in_reward=True)
    assert components(episode)["gate"] == 1.0


def test_a_sandbox_failure_on_a_remembered_program_is_not_held_against_the_suite_of_others(table):
    broken = "def f(n): return n * 2 + 0"
    table.sandbox.broken = {broken}
    episode = table.play([WRONG], ["assert f(1) == 2"], memory=[broken, RIGHT])
    assert rewards(episode, "discriminator") == [1.0]


@pytest.mark.parametrize(
    ("programs", "memory"), [([WRONG], [RIGHT]), ([WRONG, RIGHT], []), ([RIGHT], [])], ids=str
)
def test_a_program_that_the_sandbox_cannot_judge_costs_a_suite_nothing(table, programs, memory):
    """It might be what passes the suite's test, which earns less if nobody passes it."""
    table.sandbox.broken = {RIGHT}
    episode = table.play(programs, ["assert f(1) == 2"], memory=memory)
    assert rewards(episode, "discriminator") == [None]
    assert components(episode)["sandbox_failure"] == 1
    assert rewards(episode, "generator") == [None if program == RIGHT else 0.0 for program in programs]


def test_a_suite_that_is_written_against_a_program_that_cannot_be_judged_is_dropped(table):
    table.sandbox.broken = {RIGHT}
    episode = table.play(
        [RIGHT, WRONG_AT_3], ["assert f(3) == 6"] * 2, attack="program", memory=["def f(n): return n * 2"]
    )
    assert [reward is None for reward in rewards(episode, "discriminator")] == [True, False]
    assert components(episode)["sandbox_failure"] == 1 and "sandbox_failure" not in components(episode, 1)


def test_corrected_outputs_are_charged_for_the_tests_that_count_only(table):
    """All five outputs are corrected, but four of the tests repeat another one's behaviour."""
    rules = RewardRules(behaviour_duplicates_from=2)
    suite = "\n".join(f"assert f({i}) == 77" for i in (10, 11, 12, 13, 14))
    episode = table.play([RIGHT, WRONG], [suite], test_format="relabel", rewards=rules)
    parts = components(episode)
    assert (parts["valid"], parts["wrong_outputs"]) == (1, 1)
    assert parts["validity"] == pytest.approx(0.5 / 5)
    assert rewards(episode, "discriminator") == pytest.approx([0.05])


def test_baseline_tests_count_for_the_generator_only(table):
    wrong_at_0 = "def f(n): return n * 2 if n else 1"
    episode = table.play([wrong_at_0], ["assert f(1) == 2"], baseline_in_reward=True)
    assert rewards(episode, "generator") == [0.5]
    assert rewards(episode, "discriminator") == [0.0]


# ---------------------------------------------------------------------- the edges
@pytest.mark.parametrize(("programs", "suites"), [([RIGHT], []), ([], ["assert f(1) == 2"]), ([], [])])
def test_a_seat_may_be_empty(table, programs, suites):
    episode = table.play(programs, suites)
    assert len(episode.trajectories) == len(programs) + len(suites)
    assert all(t.reward is None for t in episode.trajectories)


def test_hostile_suites_do_not_end_the_episode(table):
    hostile = [
        "assert f(0x" + "f" * 6000 + ") == 1",
        "assert f" + ".a" * 190,
        "assert f(1\x00) == 2",
        "[" * 900,
    ]
    assert rewards(table.play([RIGHT], [*hostile, "assert f(1) == 2"]), "generator") == [1.0]


# ---------------------------------------------------------------------- what each test did


def test_a_program_keeps_what_each_test_did_to_it_and_whose_test_it_was(table):
    suites = ["assert f(1) == 2\nassert f(3) == 6", "assert f(3) == 6"]
    episode = table.play([WRONG_AT_3, WRONG], suites, baseline_in_reward=True)
    first, second = episode.judged("generator")
    assert [(o.test, o.owner, o.status) for o in first.outcomes] == [
        ("assert f(0) == 0", "problem", "PASSED"),
        ("assert f(1) == 2", "discriminator #0", "PASSED"),
        ("assert f(3) == 6", "discriminator #0 #1", "WRONG_ANSWER"),
    ]
    assert {o.status for o in second.outcomes} == {"RUNTIME_ERROR"}
    assert {o.error for o in second.outcomes} == {"ZeroDivisionError: division by zero"}


def test_a_suite_keeps_what_became_of_each_of_its_tests(table):
    table.sandbox.flaky = {"assert f(5) == 10"}
    lines = ["f(3) == 6", "f(3)==6", "f(1) == 5", "f(n) == 2", "f('a') == 'aa'", "f(5) == 10"]
    suite = "let me think\n" + "\n".join(f"assert {line}" for line in lines)
    episode = table.play([RIGHT, WRONG_AT_3], [suite], max_tests=9)
    (found,) = episode.judged("discriminator")
    assert told(found) == [
        ("let me think", "parse", ""),
        ("assert f(3) == 6", "valid", ""),
        ("assert f(3) == 6", "duplicate", ""),
        ("assert f(1) == 5", "rejected", "the reference: WRONG_ANSWER"),
        ("assert f(n) == 2", "literal", ""),
        ("assert f('a') == 'aa'", "contract", ""),
        ("assert f(5) == 10", "unstable", "the reference gives PASSED, then WRONG_ANSWER"),
    ]
    assert [o.kills for o in found.outcomes] == [(), (1,), (), (), (), (), ()]
    assert sum(o.status == "valid" for o in found.outcomes) == found.components["valid"]


@pytest.mark.parametrize("value", ["float('nan')", "print", "[int]"])
def test_a_value_that_is_no_literal_cannot_be_an_expected_output(table, value):
    reference = f"def f(n): return n * 2 if n < 9 else {value}"
    table.problem = replace(table.problem, reference_solution=reference)
    episode = table.play([RIGHT, WRONG_AT_3], ["f(3)\nf(9)"], test_format="input_only")
    valid, other = episode.judged("discriminator")[0].outcomes
    assert (valid.test, valid.status, valid.kills) == ("assert f(3) == 6", "valid", (1,))
    assert (other.test, other.status, other.kills) == ("f(9)", "no_literal", ())
    assert other.error.startswith("the reference gives ") and components(episode)["fault_rejected"] == 1


# ---------------------------------------------------------------------- what is met again
def test_programs_meet_the_mistake_book_and_are_paid_for_it(table):
    past = {"discriminator": ("assert f(3) == 6",)}
    episode = table.play([RIGHT, WRONG_AT_3], ["assert f(1) == 2"], past=past)
    assert rewards(episode, "generator") == [1.0, 0.5]
    assert rewards(episode, "discriminator") == [0.0]  # for its own test kills nobody
    owners = {o.test: o.owner for o in episode.trajectories[0].outcomes}
    assert owners == {"assert f(1) == 2": "discriminator #0", "assert f(3) == 6": "mistake book"}
    assert episode.mistakes.tests == {"assert f(3) == 6": True}


def test_a_test_of_the_book_that_all_pass_is_told_as_passed(table):
    past = {"discriminator": ("assert f(1) == 2", "assert f(2) == 5")}
    episode = table.play([RIGHT, WRONG_AT_3], ["assert f(3) == 6"], past=past)
    # the second one is no valid test (any more), so nobody fails it
    assert [test for test, failed in episode.mistakes.tests.items() if failed] == ["assert f(3) == 6"]
    assert episode.mistakes.tests.keys() == {*past["discriminator"], "assert f(3) == 6"}
    assert rewards(episode, "generator") == [1.0, 0.5]


@pytest.mark.parametrize(("form", "written"), [("input_only", "f(3)"), ("relabel", "assert f(3) == 77")])
def test_tests_are_remembered_as_they_were_written(table, form, written):
    """So that they can be met again, under the same rules."""
    first = table.play([RIGHT, WRONG_AT_3], [f"{written}\n{written.replace('3', '1')}"], test_format=form)
    assert first.mistakes.tests == {written: True}
    again = table.play([WRONG_AT_3], [], test_format=form, past={"discriminator": (written,)})
    assert rewards(again, "generator") == [0.0] and again.mistakes.tests == {written: True}


def test_strict_tests_of_several_authors_or_of_the_past_share_no_process(table):
    past = {"discriminator": ("assert f(3) == 6", "assert f(4) == 8")}
    table.play([WRONG_AT_3], ["assert f(1) == 2", "assert f(2) == 4"], past=past)
    together = [tests for program, tests, _ in table.sandbox.jobs if program == WRONG_AT_3]
    assert sorted(together) == [(f"assert f({n}) == {2 * n}",) for n in range(1, 5)]


def test_suites_are_paid_for_the_wrong_programs_of_the_past(table):
    suites = ["assert f(3) == 6", "assert f(1) == 2"]
    episode = table.play([RIGHT], suites, past={"generator": (WRONG_AT_3,)})
    assert rewards(episode, "discriminator") == [0.5, 0.0]  # half of the programs fail; none does
    assert [components(episode, i)["past_kill_rate"] for i in (0, 1)] == [1.0, 0.0]
    assert [components(episode, i)["kill_rate"] for i in (0, 1)] == [0.0, 0.0]
    assert rewards(episode, "generator") == [1.0]


def test_a_past_program_that_the_sandbox_cannot_judge_counts_for_nothing(table):
    table.sandbox.broken = {WRONG_AT_3}
    episode = table.play([RIGHT], ["assert f(3) == 6"], past={"generator": (WRONG_AT_3,)})
    assert rewards(episode, "discriminator") == [0.0] and "past_kill_rate" not in components(episode)


def test_wrong_programs_are_those_that_pass_something_and_fail_something(table):
    suite = "assert f(3) == 6\nassert f(1) == 2"
    episode = table.play([RIGHT, WRONG_AT_3, WRONG_AT_3, WRONG, BROKEN_SYNTAX], [suite])
    assert episode.mistakes.programs == (WRONG_AT_3,)


def test_where_the_sandbox_judged_no_program_nothing_is_a_mistake(table):
    table.sandbox.broken = {WRONG}
    episode = table.play([WRONG], ["assert f(3) == 6"], past={"discriminator": ("assert f(1) == 2",)})
    assert episode.mistakes == Mistakes()


@pytest.mark.parametrize("signature", ["", "f(x: int) -> int", "int f(int x)"])
def test_a_problem_whose_signature_names_no_python_function_is_refused(table, signature: str) -> None:
    other = replace(table.problem, function_signature=signature)
    assert "needs Python functions" in (MultistageRules().refuse(other) or "")
