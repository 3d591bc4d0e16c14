"""The adversarial multi-stage game.

The generator reasons in stages (sparring/core/stages.py), with one completion per stage; the last completion is a program. The
discriminator writes a suite of tests. The tests are checked on the reference solution (suites.py), the programs run on
the valid tests, and both players are rewarded (rewards.py). One episode has several programs and several suites for one
problem, and every program runs on every suite. With attack "program", each suite is written against one of the programs,
which the discriminator is shown.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparring.core.episode import Episode, Mistakes, Outcome, Trajectory, Turn
from sparring.core.interfaces import Message, Player, PromptFormat, Sandbox
from sparring.core.play import DISCRIMINATOR, GENERATOR
from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.games.judging import judged, outcomes_of
from sparring.games.multistage import messages
from sparring.games.multistage.rewards import (
    RewardRules,
    SuiteFacts,
    behaviour_duplicates,
    discriminator_reward,
    generator_reward,
    pass_rate,
)
from sparring.games.multistage.rules import MultistageRules
from sparring.games.multistage.suites import ProgramResults, SuiteResult, Suites, read_suite
from sparring.games.parsing import read_program
from sparring.games.suite_scores import SuiteRecord
from sparring.games.turns import further, take_turn, try_again, worst


class MultistageGame:
    def __init__(self, rules: MultistageRules) -> None:
        self.rules, self._stages = rules, rules.played

    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        """Plays one episode. The programs also run on the tests in the discriminator's past, and the suites are also run
        on the wrong programs in the generator's past.

        Args:
            memory: earlier programs for this problem. They are run only on suites of which no program of the episode
                passes a valid test, to decide whether the tests can be passed at all (guard 3 in rewards.py).
        """
        generator, discriminator = players[GENERATOR], players[DISCRIMINATOR]
        programming = asyncio.create_task(self._programs(problem, generator, sandbox))

        async def attack(number: int) -> Trajectory:
            if self.rules.attack == "problem":
                return await self.attack(problem, discriminator, number)
            shown = [*(program.artifact for program in await programming), *generator.past]
            program = shown[number % len(shown)] if shown else None
            return await self.attack(problem, discriminator, number, program)

        programs, suites = await asyncio.gather(
            programming, asyncio.gather(*(attack(i) for i in range(discriminator.attempts)))
        )
        judge = Suites(problem, self.rules, sandbox, discriminator.format)
        # each test of the past is a suite of its own, since such tests have different authors
        validated = await judge.validate([*(suite.artifact for suite in suites), *discriminator.past])
        judged, book = validated[: len(suites)], validated[len(suites) :]
        groups = judge.groups(validated)
        ran, past = await asyncio.gather(
            asyncio.gather(*(judge.meet(program.artifact, groups) for program in programs)),
            asyncio.gather(*(judge.meet(wrong, judge.groups(judged)) for wrong in generator.past)),
        )
        remembered = await self._remembered(memory, judged, ran, judge)

        owners = _owners(judged, book)
        for program, met in zip(programs, ran, strict=True):
            _reward_program(program, met, owners, problem.baseline_asserts, self.rules.rewards)
        results = {p.attempt: met.outcomes for p, met in zip(programs, ran, strict=True) if met is not None}
        for text, suite in zip(suites, judged, strict=True):
            if suite is None:
                text.components["sandbox_failure"] = 1.0
            else:
                faced = range(len(ran) + len(past))
                if self.rules.attack == "program" and faced:
                    faced = faced[text.attempt % len(faced) :][:1]  # the one that the discriminator was shown
                now = [ran[i] for i in faced if i < len(ran)]
                before = [past[i - len(ran)] for i in faced if i >= len(ran)]
                self._reward_suite(text, suite, results, remembered, now, before, all_judged=None not in ran)
        return Episode(
            problem_id=problem.id,
            trajectories=[*programs, *suites],
            mistakes=_mistakes(programs, ran, judged, dict(zip(discriminator.past, book, strict=True))),
        )

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        if player == DISCRIMINATOR:
            # few tokenizers have a token for more than one character of this text
            program = "1 " * self.rules.shown_chars if self.rules.attack == "program" else None
            return len(style.say((), messages.attack(problem, self.rules, program))) + max_tokens
        tokens = style.say((), messages.solve(problem, self._stages[0]))
        for stage in self._stages[1:]:
            tokens = style.say([*tokens, *[0] * max_tokens], messages.go_on(stage))
        told = self.told(worst(problem.baseline_asserts))
        for _ in range(self.rules.attempts_per_episode - 1):
            tokens = style.say([*tokens, *[0] * max_tokens], told)
        return len(tokens) + max_tokens

    # ------------------------------------------------------------------ the players' moves
    async def _programs(self, problem: Problem, player: Player, sandbox: Sandbox) -> list[Trajectory]:
        """Returns the generator's first attempts, and the further attempts after those that fail a baseline test."""
        chains = await self.solve_all(problem, player)
        programs = list(chains)
        tests, limits = problem.baseline_asserts, problem.limits_over(self.rules.sandbox_limits)
        for number in range(2, 2 if player.once else self.rules.attempts_per_episode + 1):
            sources = [problem.in_harness(chain.artifact) for chain in chains]
            ran = await asyncio.gather(
                *(judged(sandbox.judge(source, tests, limits=limits)) for source in sources)
            )
            failed = [
                (chain, outcomes_of(tests, verdicts))
                for chain, verdicts in zip(chains, ran, strict=True)
                if verdicts is not None and not all(verdict.passed for verdict in verdicts)
            ]
            chains = await asyncio.gather(
                *(self.again(problem, player, chain, told) for chain, told in failed)
            )
            programs += [further(chain, number, player.attempts) for chain in chains]
        return programs

    async def solve_all(self, problem: Problem, player: Player) -> list[Trajectory]:
        """Returns all first attempts of the generator, not yet judged. If the attempts branch, they share turns."""
        shared: dict[tuple[int, int], asyncio.Task[Turn]] = {}
        return await asyncio.gather(*(self.solve(problem, player, i, shared) for i in range(player.attempts)))

    async def solve(
        self,
        problem: Problem,
        player: Player,
        attempt: int,
        shared: dict[tuple[int, int], asyncio.Task[Turn]],
    ) -> Trajectory:
        """Returns one attempt of the generator, not yet judged: a completion per stage, of which the last is a program.

        Args:
            shared: turns that are finished or being generated, by (stage, node). New turns are added.
        """
        tokens: list[int] = []
        turns: list[Turn] = []
        for stage in self._stages:
            message = messages.go_on(stage) if turns else messages.solve(problem, stage)
            tokens = player.format.say(tokens, message)
            node = player.branching.node(attempt, stage.number) if player.branching else attempt
            key = stage.number, node
            if key not in shared:
                shared[key] = asyncio.create_task(
                    take_turn(player, tokens, node, stage.number, message.begins)
                )
            turns.append(await shared[key])
            tokens = [*tokens, *turns[-1].completion.tokens]
        program = read_program(turns[-1].text, problem)
        place = player.branching.place(attempt) if player.branching else None
        return Trajectory(player=GENERATOR, attempt=attempt, turns=turns, artifact=program, place=place)

    def told(self, outcomes: Sequence[Outcome]) -> Message:
        """Returns the message that shows the generator the tests that its program failed, among these."""
        return messages.again(outcomes)

    async def again(
        self, problem: Problem, player: Player, attempt: Trajectory, outcomes: Sequence[Outcome]
    ) -> Trajectory:
        """Shows the player the tests that its program failed, and lets it write the program again. Returns the attempt
        with this turn added."""
        turn = await try_again(player, attempt, self.told(outcomes))
        program = read_program(turn.text, problem)
        return replace(attempt, turns=[*attempt.turns, turn], artifact=program, components={})

    async def attack(
        self, problem: Problem, player: Player, attempt: int, program: str | None = None
    ) -> Trajectory:
        """Returns one attempt of the discriminator, a suite, not yet judged. program: the program that the discriminator
        is shown, if any."""
        message = messages.attack(problem, self.rules, program)
        turn = await take_turn(player, player.format.say((), message), attempt, 0, message.begins)
        suite = messages.without_example(turn.text, message.begins)
        return Trajectory(player=DISCRIMINATOR, attempt=attempt, turns=[turn], artifact=suite)

    # ------------------------------------------------------------------ suites outside of play
    @property
    def limits(self) -> Limits:
        return self.rules.sandbox_limits

    @property
    def max_tests(self) -> int:
        return self.rules.max_tests

    async def judge_suites(
        self,
        problem: Problem,
        suites: Sequence[str],
        sandbox: Sandbox,
        wrong: Sequence[str] = (),
        mutants: Sequence[str] = (),
        style: PromptFormat | None = None,
    ) -> list[SuiteRecord | None]:
        return await Suites(problem, self.rules, sandbox, style).records(suites, wrong, mutants)

    def tests_of(self, suites: Sequence[str], problem: Problem) -> list[str]:
        """Returns the tests of the suites that can be run, each once. With test_format "strict", the tests are the
        discriminator's assertions, since it was trained to write expected outputs. With the other formats, the tests
        are calls, and the results of several programs are compared with each other."""
        rules, strict = self.rules, self.rules.test_format == "strict"
        read = (read_suite(text, problem, rules)[: rules.max_tests] for text in suites)
        emitted = [test for of_suite in read for test in of_suite if not test.fault]
        return list(dict.fromkeys(test.source if strict else test.call for test in emitted))

    # ------------------------------------------------------------------ judging
    async def _remembered(
        self,
        memory: Sequence[str],
        judged: Sequence[SuiteResult | None],
        ran: Sequence[ProgramResults | None],
        judge: Suites,
    ) -> list[ProgramResults | None]:
        """Runs the remembered programs on those suites of which no current program passes a valid test, and returns
        their results."""
        passed = {test for met in ran if met is not None for test, o in met.outcomes.items() if o}
        unsolved = [
            suite.valid for suite in judged if suite and suite.valid and not passed & suite.valid.keys()
        ]
        if not unsolved:
            return []
        return await asyncio.gather(*(judge.meet(program, unsolved) for program in memory))

    def _reward_suite(
        self,
        suite: Trajectory,
        judged: SuiteResult,
        met: Mapping[int, dict[str, bool | None]],
        remembered: Sequence[ProgramResults | None],
        faced: Sequence[ProgramResults | None],
        past: Sequence[ProgramResults | None],
        *,
        all_judged: bool,
    ) -> None:
        """Sets the reward, components and outcomes of a suite.

        Args:
            suite: the attempt of the discriminator.
            judged: its tests and their results on the reference.
            met: outcomes of all programs of the episode that were judged, by attempt.
            remembered: results of remembered programs (see `_remembered`).
            faced: results of the programs of the episode that count for the suite's reward.
            past: results of the wrong programs of earlier steps that count for the suite's reward.
            all_judged: whether the sandbox judged all programs of the episode.
        """
        rules = self.rules.rewards
        sources, results = list(judged.valid), list(met.values())
        by_test = [[result[s] for result in results] for s in sources]
        repeats = behaviour_duplicates(by_test, rules)
        # A test whose outcome counts for no program, such as one on which the reference itself needs too long, is not
        # counted as valid: it would earn validity for nothing.
        silent = {i for i, outcomes in enumerate(by_test) if outcomes and all(o is None for o in outcomes)}
        kept = [s for i, s in enumerate(sources) if i not in repeats | silent]
        facts = SuiteFacts(
            emitted=judged.written,
            parsed=sum(t.fault != "parse" for t in judged.emitted),
            valid=len(kept),
            wrong_outputs=sum(s in judged.wrong_outputs for s in kept),
            duplicates=judged.duplicates + len(repeats),
            outcomes=[[of.outcomes[s] for s in kept] for of in faced if of is not None],
            past=[[of.outcomes[s] for s in kept] for of in past if of is not None],
            solvable=any(
                r.get(s) for r in [*results, *(of.outcomes for of in remembered if of)] for s in kept
            ),
        )
        suite.valid_tests = judged.valid
        reward, suite.components = discriminator_reward(facts, rules)
        measured_by = [*faced, *(past if self.rules.attack == "program" else ())]
        # a program that the sandbox could not judge might be the one that passes a test
        gate_decides = rules.unsolved_weight < 1 and "pass_rate" in suite.components
        is_known = facts.solvable or not gate_decides or (all_judged and None not in remembered)
        if is_known and any(measured_by):
            suite.reward = reward
        elif measured_by:  # else there is no program to measure the suite by
            suite.components["sandbox_failure"] = 1.0
        for fault in ("parse", "literal", "contract", "size", "shown"):
            suite.components[f"fault_{fault}"] = float(sum(t.fault == fault for t in judged.emitted))
        suite.components["fault_rejected"] = float(len(judged.rejected))
        if judged.surplus:
            suite.components["fault_surplus"] = float(judged.surplus)
        if suite.is_cut_off:
            suite.components["ended_cut_off"] = 1.0
        suite.components["fault_silent"] = float(len(silent))
        suite.outcomes = _became(
            judged, met, repeats={sources[i] for i in repeats}, silent={sources[i] for i in silent}
        )


def _reward_program(
    program: Trajectory,
    met: ProgramResults | None,
    owners: Mapping[str, str],
    baseline: Sequence[str],
    rules: RewardRules,
) -> None:
    if met is None:
        program.components["sandbox_failure"] = 1.0
        return
    program.outcomes = tuple(
        Outcome(
            test=test,
            owner=owners.get(test, "problem"),
            status=verdict.status,
            error=verdict.error,
            shared=verdict.isolation == "shared",
            counts=met.outcomes[test] is not None,
        )
        for test, verdict in met.verdicts.items()
    )
    rate = pass_rate(list(met.outcomes.values()))
    if rate is None:  # there is no test that counts
        program.components["no_valid_test"] = 1.0
        return
    passes_baseline = all(met.outcomes.get(test) is not False for test in baseline)
    program.reward = generator_reward(rate, rules, passes_baseline=passes_baseline)
    program.components |= {"pass_rate": rate, "solved": float(rate == 1.0), "tests": float(len(met.outcomes))}


def _mistakes(
    programs: Sequence[Trajectory],
    ran: Sequence[ProgramResults | None],
    judged: Sequence[SuiteResult | None],
    book: Mapping[str, SuiteResult | None],
) -> Mistakes:
    """Returns what is remembered for later episodes: the wrong programs, and for each test whether it killed a program.
    book: text of each test of the mistake book -> the suite that holds this test alone.
    """
    met = [
        (program.artifact, of.outcomes) for program, of in zip(programs, ran, strict=True) if of is not None
    ]
    if not met:
        return Mistakes()
    failed = {test for _, outcomes in met for test, passed in outcomes.items() if passed is False}
    killing = {
        test.source: True
        for suite in judged
        if suite
        for test in suite.distinct
        if suite.sources.get(test.identity) in failed
    }
    again = {text: not failed.isdisjoint(suite.valid) for text, suite in book.items() if suite}
    wrong = dict.fromkeys(text for text, outcomes in met if {True, False} <= set(outcomes.values()))
    return Mistakes(programs=tuple(wrong), tests=again | killing)


def _owners(judged: Sequence[SuiteResult | None], book: Sequence[SuiteResult | None]) -> dict[str, str]:
    """Returns the origin of each valid test, by its source: the suites that contain it, or the mistake book."""
    attempts: dict[str, list[str]] = {}
    for attempt, suite in enumerate(judged):
        for source in suite.valid if suite else ():
            attempts.setdefault(source, []).append(f"#{attempt}")
    past = {source: "mistake book" for suite in book if suite for source in suite.valid}
    return past | {source: f"{DISCRIMINATOR} {' '.join(found)}" for source, found in attempts.items()}


def _became(
    judged: SuiteResult, met: Mapping[int, dict[str, bool | None]], *, repeats: set[str], silent: set[str]
) -> tuple[Outcome, ...]:
    """Returns the outcome of each test of a suite, in the suite's order. repeats, silent: sources of valid tests that do
    not count."""
    outcomes, seen = [], set[str]()
    for test in judged.emitted:
        source = judged.sources.get(test.identity, test.source)
        status, error, kills = "valid", "", ()
        if test.fault:
            status = test.fault
        elif not seen.isdisjoint(test.inputs):
            status = "duplicate"
        elif test.identity in judged.rejected:
            status, error = judged.rejected[test.identity]
        else:
            kills = tuple(attempt for attempt, result in met.items() if result[source] is False)
            status = "repeat" if source in repeats else "silent" if source in silent else "valid"
            error = f"written as {test.source}" if source in judged.wrong_outputs else ""
        if not test.fault and status != "duplicate":  # as in `emitted.distinct`
            seen |= test.inputs
        outcomes.append(Outcome(test=source, status=status, error=error, kills=kills))
    return tuple(outcomes)
