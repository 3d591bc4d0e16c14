"""The output prediction game: an author writes a program, and an opponent predicts what it prints. The game is zero-sum.

The author earns +1 if the opponent mispredicts the output and -1 if it predicts it, averaged over the predictions; the
opponent earns the opposite. The program must run twice and print the same short line both times. Everything that makes
the output depend on more than the program (clocks, random numbers, hashes, addresses) is banned. The opponent is not
asked about a program that breaks a rule.
"""

import asyncio
from collections.abc import Mapping, Sequence

from sparring.core.answers import extract_program, last_block
from sparring.core.episode import Episode, Outcome, Trajectory
from sparring.core.interfaces import Message, Player, PromptFormat, Sandbox
from sparring.core.problem import Problem
from sparring.core.verdict import OutputTest, Status
from sparring.games.judging import judged, outcomes_of
from sparring.games.prediction.rules import AUTHOR, FOUL_REWARD, OPPONENT, OutputPredictionRules, foul
from sparring.games.turns import answer_all, take_turn

_WRITE = """Write a short Python program whose output another programmer will find hard to predict by reading it.

Topic: {topic}

It must print one short line, always the same: no input, no random numbers, clocks, hashes, files or imports but math.
Answer with one ```python block."""
_PREDICT = """What does this Python program print?

```python
{program}
```

Answer with the output only."""
_OTHER_HEAP = "__doc__ = [*map(bytes, [*range(0, 512, 8)] * 50), *map(bytes, range(512, 8192, 16))]\n"
"""Python that is put before a program in its second run: it allocates blocks of many sizes. An object's address, which
its repr shows, then differs in its low bits as well; the high bits differ between processes anyway."""


class OutputPredictionGame:
    def __init__(self, rules: OutputPredictionRules) -> None:
        self.rules = rules

    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        """Plays one episode. memory: programs that the opponent predicts besides the author's."""
        programs = await answer_all(players[AUTHOR], self.topic(problem))
        for program in programs:
            program.artifact = extract_program(program.artifact)
        earlier = [
            Trajectory(player=AUTHOR, attempt=len(programs) + i, turns=[], artifact=program)
            for i, program in enumerate(memory)
        ]
        asked = [*programs, *earlier]
        outputs = await asyncio.gather(*(self._output(p, players[OPPONENT], sandbox) for p in asked))
        predictions = await asyncio.gather(
            *(
                self._predict(players[OPPONENT], program, output)
                for program, output in zip(asked, outputs, strict=True)
                if output is not None
            )
        )
        return Episode(
            problem_id=problem.id, trajectories=[*programs, *(t for of_one in predictions for t in of_one)]
        )

    def topic(self, problem: Problem) -> Message:
        return Message(brief=problem.description, full=_WRITE.format(topic=problem.description))

    def question(self, program: str) -> Message:
        return Message(brief=program, full=_PREDICT.format(program=program.rstrip()))

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        """See Game. The opponent's prompt contains a program that is not yet written. It is assumed to have the maximum
        length, and one token per character."""
        if player == AUTHOR:
            return len(style.say((), self.topic(problem))) + max_tokens
        return len(style.say((), self.question("x"))) + self.rules.max_program_chars + max_tokens

    async def _output(self, program: Trajectory, opponent: Player, sandbox: Sandbox) -> str | None:
        """Returns the line that the program prints; None if there is nothing to predict. In that case, this method sets
        the author's reward, unless the sandbox failed: the author then has no reward."""
        broken = foul(program.artifact, self.rules)
        if broken is None:
            test, limits = OutputTest(stdout=None), self.rules.sandbox_limits
            sources = (program.artifact, _OTHER_HEAP + program.artifact)
            found = [await judged(sandbox.judge(source, [test], limits=limits)) for source in sources]
            runs = [verdicts[0] for verdicts in found if verdicts is not None]
            if len(runs) < len(sources):
                program.components["sandbox_failure"] = 1.0
                return None
            output = runs[0].stdout.rstrip("\n")
            program.outcomes = outcomes_of([str(test), f"{test} once more"], runs, owner="the rules")
            if not all(run.passed for run in runs):
                broken = "fails"
            elif runs[0].stdout != runs[1].stdout:
                broken = "not_deterministic"
            elif (
                not output.strip()
                or len(output) > self.rules.max_output_chars
                or len(output.splitlines()) > 1
                or not _can_be_predicted(program.artifact, output, opponent)
            ):
                broken = "output"
            else:
                program.components |= {"valid": 1.0, "lines": float(len(program.artifact.splitlines()))}
                return output
        program.reward = FOUL_REWARD
        program.components |= {"valid": 0.0, f"foul_{broken}": 1.0}
        return None

    async def _predict(self, opponent: Player, program: Trajectory, output: str) -> list[Trajectory]:
        """Returns the opponent's predictions for one program, which form one group. Sets the rewards of both players."""
        tokens = opponent.format.say((), self.question(program.artifact))
        first = program.attempt * opponent.attempts
        turns = await asyncio.gather(
            *(take_turn(opponent, tokens, first + i, 0) for i in range(opponent.attempts))
        )
        made = []
        for i, turn in enumerate(turns):
            right = _answer(turn.text) == output.strip()
            made.append(
                Trajectory(
                    player=OPPONENT,
                    attempt=first + i,
                    turns=[turn],
                    reward=1.0 if right else -1.0,
                    components={"predicted": float(right)},
                    artifact=turn.text,
                    outcomes=(
                        Outcome(
                            test=f"the program prints {output!r}",
                            owner=f"{AUTHOR} #{program.attempt}",
                            status=Status.PASSED if right else Status.WRONG_ANSWER,
                        ),
                    ),
                    group=str(program.attempt),
                )
            )
        if not made:  # the opponent makes no attempts, as when the bank is made
            return made
        missed = [t.reward == -1.0 for t in made]
        program.reward = sum(1.0 if m else -1.0 for m in missed) / len(missed)
        program.components["stumped"] = sum(missed) / len(missed)
        return made


def _answer(text: str) -> str:
    """Returns the line that an opponent predicts. A chat model may answer in a code block, or between backticks."""
    line = last_block(text).strip()
    return line[1:-1].strip() if len(line) > 2 and line[0] == line[-1] == "`" else line


def _can_be_predicted(program: str, output: str, opponent: Player) -> bool:
    """Returns whether the opponent can read the program in its prompt and answer with its output. It cannot if the output is
    longer than an answer may be, or a fence or a thinking tag, or if a text contains special tokens of its model."""
    style = opponent.format
    answer = style.completion(output)
    read = style.text(style.completion(program))
    return (
        len(answer) <= opponent.max_tokens + 1  # with the end
        and _answer(style.text(answer)) == output.strip()
        and read.split() == program.split()
    )
