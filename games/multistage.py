"""The adversarial multi-stage game (R0).

The generator reasons in stages (games/stages.py), one completion each, the last one a program. The discriminator writes
a suite of tests. Tests are checked on the reference solution, twice; programs meet the valid tests; both earn.
One episode plays `attempts` programs against `attempts` suites of one problem, every program on every suite.
"""

import ast
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from core.episode import Episode, Outcome, Trajectory, Turn
from core.interfaces import Player, PromptFormat, Sandbox, SandboxFailure
from core.problem import Problem
from core.settings import Settings
from core.verdict import Limits, Verdict, known_by
from games.parsing import EmittedTest, InputLimits, extract_program, parse_suite
from games.rewards import (
    RewardRules,
    SuiteFacts,
    behaviour_duplicates,
    discriminator_reward,
    needed_cpu_ms,
    outcome,
    pass_rate,
    reward_in_words,
)
from games.stages import REASONING_STAGES, ReasoningStage
from games.turns import take_turn

GENERATOR, DISCRIMINATOR = "generator", "discriminator"


class MultistageRules(Settings):
    """R0: a generator in five stages against a discriminator that writes tests."""

    kind: Literal["multistage"] = "multistage"
    test_format: Literal["strict", "relabel", "input_only"] = "strict"
    """strict: the expected output must match the reference; relabel: the reference fills it in;
    input_only: the discriminator writes inputs only."""
    max_tests: int = Field(default=8, ge=1)
    """Tests of a suite that are read; the rest is ignored."""
    baseline_in_reward: bool = False
    """The generator's pass rate also counts the problem's own baseline tests."""
    rewards: RewardRules = RewardRules()
    input_limits: InputLimits = InputLimits()
    sandbox_limits: Limits = Limits()

    @property
    def seats(self) -> dict[str, str]:
        """Who plays what: player -> policy."""
        return {GENERATOR: GENERATOR, DISCRIMINATOR: DISCRIMINATOR}

    def why(self, player: str, components: Mapping[str, float]) -> str:
        """How a reward came about, from its components."""
        if player == DISCRIMINATOR:
            return reward_in_words(components, self.rewards)
        return "share of the tests passed, of those that count"


@dataclass(slots=True)
class JudgedSuite:
    """A suite on its way through validation."""

    emitted: list[EmittedTest]
    distinct: list[EmittedTest]
    """Those worth running, each once."""
    duplicates: int
    judged: bool = False
    """False until the reference has answered; stays False where the sandbox failed."""
    valid: dict[str, float] = field(default_factory=dict)
    """Source of each valid test -> the reference's CPU milliseconds."""
    sources: dict[str, str] = field(default_factory=dict)
    """Identity of each valid test -> its source."""
    rejected: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Identity of each runnable test that the reference does not confirm -> (why, error)."""
    wrong_outputs: set[str] = field(default_factory=set)
    """Sources of valid tests whose expected output the reference had to correct (test_format "relabel")."""


class MultistageGame:
    def __init__(self, rules: MultistageRules, stages: Sequence[ReasoningStage] = REASONING_STAGES) -> None:
        """stages: those that the generator plays; the last one writes the program."""
        self.rules, self._stages = rules, tuple(stages)

    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        """memory: for the solvability gate only."""
        generator, discriminator = players[GENERATOR], players[DISCRIMINATOR]
        programs, suites = await asyncio.gather(
            self.solve_all(problem, generator),
            asyncio.gather(*(self.attack(problem, discriminator, i) for i in range(discriminator.attempts))),
        )
        judged = await self._validate(problem, [s.artifact for s in suites], sandbox)
        groups, limits = self._test_groups(problem, judged), self._limits(problem)
        ran = await asyncio.gather(*(self._run_apart(p.artifact, groups, sandbox, limits) for p in programs))
        results = [self._counted(verdicts, groups, limits) for verdicts in ran]
        remembered = await self._remembered(memory, judged, results, sandbox, limits)

        owners = _owners(judged)
        for program, verdicts, result in zip(programs, ran, results, strict=True):
            self._reward_program(program, result)
            program.outcomes = _met(verdicts or {}, result or {}, owners)
        met = {p.attempt: result for p, result in zip(programs, results, strict=True) if result is not None}
        for suite, judgement in zip(suites, judged, strict=True):
            if judgement is None:
                suite.components["sandbox_failure"] = 1.0
            else:
                self._reward_suite(suite, judgement, met, remembered)
        info = {"valid_tests": [list(j.valid) if j else None for j in judged]}
        return Episode(problem_id=problem.id, trajectories=[*programs, *suites], info=info)

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        if player == DISCRIMINATOR:
            return len(style.discriminator_prompt(problem, self.rules.max_tests)) + max_tokens
        tokens = style.generator_prompt(problem, self._stages[0].number)
        for stage in self._stages[1:]:
            tokens = style.next_stage([*tokens, *[0] * max_tokens], stage.number)
        return len(tokens) + max_tokens

    # ------------------------------------------------------------------ the players' moves
    async def solve_all(self, problem: Problem, player: Player) -> list[Trajectory]:
        """All attempts of the generator, not yet judged; where they branch, they share turns."""
        shared: dict[tuple[int, int], asyncio.Task[Turn]] = {}
        return await asyncio.gather(*(self.solve(problem, player, i, shared) for i in range(player.attempts)))

    async def solve(
        self,
        problem: Problem,
        player: Player,
        attempt: int,
        shared: dict[tuple[int, int], asyncio.Task[Turn]],
    ) -> Trajectory:
        """One attempt of the generator: a completion per stage, the last one a program. Not yet judged.

        shared: turns under way or made, by (stage, node).
        """
        tokens = player.format.generator_prompt(problem, self._stages[0].number)
        turns: list[Turn] = []
        for stage in self._stages:
            if turns:
                tokens = player.format.next_stage(tokens, stage.number)
            node = player.branching.node(attempt, stage.number) if player.branching else attempt
            key = stage.number, node
            if key not in shared:
                shared[key] = asyncio.create_task(take_turn(player, tokens, node, stage.number))
            turns.append(await shared[key])
            tokens = [*tokens, *turns[-1].completion.tokens]
        program = extract_program(turns[-1].text)
        place = player.branching.place(attempt) if player.branching else None
        return Trajectory(player=GENERATOR, attempt=attempt, turns=turns, artifact=program, place=place)

    async def attack(self, problem: Problem, player: Player, attempt: int) -> Trajectory:
        """One attempt of the discriminator: a suite. Not yet judged."""
        tokens = player.format.discriminator_prompt(problem, self.rules.max_tests)
        turn = await take_turn(player, tokens, attempt, 0)
        return Trajectory(player=DISCRIMINATOR, attempt=attempt, turns=[turn], artifact=turn.text)

    # ------------------------------------------------------------------ judging
    async def _validate(
        self, problem: Problem, texts: Sequence[str], sandbox: Sandbox
    ) -> list[JudgedSuite | None]:
        """Which tests of each suite the reference confirms. None where the sandbox failed."""
        suites = [self._parse(problem, text) for text in texts]
        if self.rules.test_format == "strict":
            await asyncio.gather(*(self._confirm(problem, [suite], sandbox) for suite in suites))
        else:
            await self._confirm(problem, suites, sandbox)  # calls with literal arguments can share a job
        return [suite if suite.judged else None for suite in suites]

    def _parse(self, problem: Problem, text: str) -> JudgedSuite:
        rules = self.rules
        emitted = parse_suite(
            text,
            problem,
            test_format=rules.test_format,
            max_tests=rules.max_tests,
            limits=rules.input_limits,
        )
        runnable = [t for t in emitted if not t.fault]
        distinct = list({t.identity: t for t in reversed(runnable)}.values())[::-1]
        return JudgedSuite(emitted=emitted, distinct=distinct, duplicates=len(runnable) - len(distinct))

    def _limits(self, problem: Problem) -> Limits:
        return problem.limits or self.rules.sandbox_limits

    async def _confirm(self, problem: Problem, suites: Sequence[JudgedSuite], sandbox: Sandbox) -> None:
        """Run the suites' tests on the reference, twice; a test whose two outcomes differ is not valid."""
        strict, limits = self.rules.test_format == "strict", self._limits(problem)
        asks = list(dict.fromkeys(t.source if strict else t.call for s in suites for t in s.distinct))
        reference = problem.reference_solution
        try:
            runs = await asyncio.gather(
                *(sandbox.judge(reference, asks, limits=limits, run=n) for n in (0, 1))
            )
        except SandboxFailure:
            return
        verdicts = dict(zip(asks, zip(*runs, strict=True), strict=True))
        for suite in suites:
            suite.judged = True
            for test in suite.distinct:
                first, second = verdicts[test.source if strict else test.call]
                confirmed = first.passed and second.passed and first.value == second.value
                if not confirmed or not (strict or _is_literal(first.value)):
                    suite.rejected[test.identity] = _refusal(first, second)
                    continue
                source = test.source if strict else f"assert {test.call} == {first.value}"
                source = known_by(source, (first, second))
                suite.sources[test.identity] = source
                if self.rules.test_format == "relabel" and not _same_literal(test.expected, first.value):
                    suite.wrong_outputs.add(source)
                suite.valid[source] = needed_cpu_ms((first, second))

    def _test_groups(self, problem: Problem, judged: Sequence[JudgedSuite | None]) -> list[dict[str, float]]:
        """The tests that programs meet, with the reference's CPU milliseconds."""
        suites = [suite.valid for suite in judged if suite]
        if self.rules.test_format != "strict":  # calls with literal arguments: nothing that could tamper
            suites = [{test: ms for suite in suites for test, ms in suite.items()}]
        baseline = dict.fromkeys(problem.baseline_asserts, 0.0) if self.rules.baseline_in_reward else {}
        return [group for group in (baseline, *suites) if group]

    async def _run(
        self, program: str, tests: Mapping[str, float], sandbox: Sandbox, limits: Limits
    ) -> dict[str, Verdict] | None:
        """None if the sandbox failed."""
        if not tests:
            return {}
        try:
            return dict(zip(tests, await sandbox.judge(program, list(tests), limits=limits), strict=True))
        except SandboxFailure:
            return None

    async def _run_apart(
        self, program: str, groups: Sequence[Mapping[str, float]], sandbox: Sandbox, limits: Limits
    ) -> dict[str, Verdict] | None:
        """Like _run, each group of tests in a sandbox job of its own: an arbitrary assert could tamper with the
        tests that share its process, so only tests of one author may."""
        results = await asyncio.gather(*(self._run(program, group, sandbox, limits) for group in groups))
        merged: dict[str, Verdict] = {}
        for result in results:
            if result is None:
                return None
            merged |= result
        return merged

    def _counted(
        self, verdicts: Mapping[str, Verdict] | None, groups: Sequence[Mapping[str, float]], limits: Limits
    ) -> dict[str, bool | None] | None:
        """Outcome of each test (see rewards.outcome). None if the sandbox failed."""
        if verdicts is None:
            return None
        reference_cpu_ms = {test: ms for group in groups for test, ms in group.items()}
        return {
            test: outcome(verdict, reference_cpu_ms[test], limits, self.rules.rewards)
            for test, verdict in verdicts.items()
        }

    async def _remembered(
        self,
        memory: Sequence[str],
        judged: Sequence[JudgedSuite | None],
        results: Sequence[dict[str, bool | None] | None],
        sandbox: Sandbox,
        limits: Limits,
    ) -> list[dict[str, bool | None]]:
        """Outcomes of remembered programs on the suites of which no current program passes anything."""
        passed = {test for result in results if result for test, o in result.items() if o}
        suites = [
            suite.valid for suite in judged if suite and suite.valid and not passed & suite.valid.keys()
        ]
        if not suites:
            return []
        ran = await asyncio.gather(*(self._run_apart(program, suites, sandbox, limits) for program in memory))
        return [o for verdicts in ran if (o := self._counted(verdicts, suites, limits)) is not None]

    # ------------------------------------------------------------------ rewards
    def _reward_program(self, program: Trajectory, result: dict[str, bool | None] | None) -> None:
        if result is None:
            program.components["sandbox_failure"] = 1.0
            return
        rate = pass_rate(list(result.values()))
        if rate is None:  # no opponent's test to earn anything on
            program.components["no_valid_test"] = 1.0
            return
        program.reward = rate
        program.components |= {"pass_rate": rate, "solved": float(rate == 1.0), "tests": float(len(result))}

    def _reward_suite(
        self,
        suite: Trajectory,
        judged: JudgedSuite,
        met: Mapping[int, dict[str, bool | None]],
        remembered: Sequence[dict[str, bool | None]],
    ) -> None:
        """met: outcomes of the programs by attempt."""
        rules = self.rules.rewards
        sources, results = list(judged.valid), list(met.values())
        by_test = [[result[s] for result in results] for s in sources]
        repeats = behaviour_duplicates(by_test, rules)
        # A test that tells of no program, such as one that takes the reference itself too long, is no valid one: it
        # would earn validity for nothing.
        silent = {i for i, outcomes in enumerate(by_test) if outcomes and all(o is None for o in outcomes)}
        kept = [s for i, s in enumerate(sources) if i not in repeats | silent]
        facts = SuiteFacts(
            emitted=len(judged.emitted),
            parsed=sum(t.fault != "parse" for t in judged.emitted),
            valid=len(kept),
            wrong_outputs=sum(s in judged.wrong_outputs for s in kept),
            duplicates=judged.duplicates + len(repeats),
            outcomes=[[result[s] for s in kept] for result in results],
            solvable=any(r.get(s) for r in [*results, *remembered] for s in kept),
        )
        reward, suite.components = discriminator_reward(facts, rules)
        if results:  # else no program to be measured against: not judged
            suite.reward = reward
        for fault in ("parse", "literal", "contract", "size"):
            suite.components[f"fault_{fault}"] = float(sum(t.fault == fault for t in judged.emitted))
        suite.components["fault_rejected"] = float(len(judged.rejected))
        suite.components["fault_silent"] = float(len(silent))
        suite.outcomes = _became(
            judged, met, repeats={sources[i] for i in repeats}, silent={sources[i] for i in silent}
        )


def _owners(judged: Sequence[JudgedSuite | None]) -> dict[str, str]:
    """Source of each valid test -> the suites that hold it."""
    attempts: dict[str, list[str]] = {}
    for attempt, suite in enumerate(judged):
        for source in suite.valid if suite else ():
            attempts.setdefault(source, []).append(f"#{attempt}")
    return {source: f"{DISCRIMINATOR} {' '.join(found)}" for source, found in attempts.items()}


def _met(
    verdicts: Mapping[str, Verdict], counted: Mapping[str, bool | None], owners: Mapping[str, str]
) -> tuple[Outcome, ...]:
    """What the tests did to a program."""
    return tuple(
        Outcome(
            test=test,
            owner=owners.get(test, "problem"),
            status=verdict.status,
            error=verdict.error,
            counts=counted[test] is not None,
        )
        for test, verdict in verdicts.items()
    )


def _became(
    judged: JudgedSuite, met: Mapping[int, dict[str, bool | None]], *, repeats: set[str], silent: set[str]
) -> tuple[Outcome, ...]:
    """What became of each test of a suite, in its order. repeats, silent: sources of valid tests that do not count."""
    outcomes, seen = [], set[str]()
    for test in judged.emitted:
        source = judged.sources.get(test.identity, test.source)
        status, error, kills = "valid", "", ()
        if test.fault:
            status = test.fault
        elif test.identity in seen:
            status = "duplicate"
        elif test.identity in judged.rejected:
            status, error = judged.rejected[test.identity]
        else:
            kills = tuple(attempt for attempt, result in met.items() if result[source] is False)
            status = "repeat" if source in repeats else "silent" if source in silent else "valid"
            error = f"written as {test.source}" if source in judged.wrong_outputs else ""
        seen |= set() if test.fault else {test.identity}
        outcomes.append(Outcome(test=source, status=status, error=error, kills=kills))
    return tuple(outcomes)


def _refusal(first: Verdict, second: Verdict) -> tuple[str, str]:
    """Why the reference does not confirm a test: (status, error)."""
    if first.passed and second.passed and first.value == second.value:
        return "no_literal", f"the reference gives {first.value}"
    if first.status != second.status or first.value != second.value:
        return (
            "unstable",
            f"the reference gives {first.value or first.status}, then {second.value or second.status}",
        )
    return "rejected", f"the reference: {first.status}{': ' if first.error else ''}{first.error}"


def _same_literal(one: str | None, other: str | None) -> bool:
    return bool(ast.literal_eval(one or "") == ast.literal_eval(other or ""))


def _is_literal(value: str | None) -> bool:
    """A value that can stand in a test as the expected one and equals itself (nan does not)."""
    try:
        parsed = ast.literal_eval(value or "")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return bool(parsed == ast.literal_eval(value or ""))
