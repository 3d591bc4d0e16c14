"""What limits self-play at tic-tac-toe: the training signal, or the model that learns from it?

    python -m benchmarks.experiments.tictactoe --output output/experiments

table: the recipe's own signal, given to a table: a row of logits for each board, legal moves only, nothing to
generalise and nothing to forget; REINFORCE by plain gradient steps. credit `match`, as in the recipe: each move earns
its match's result, against a moving average for each side (RAE); `board`: against the mean of the earlier results from
that board. opponents `self`, as in the recipe; in half of the matches one side is `history`, a past version of the
policy, or `minimax`, a player without mistakes.
The policies are evaluated exactly, over all matches weighted by their probabilities.
taught: the recipe's model is trained on matches of a player without mistakes instead of random players, and then plays
as in the recipe. Each run is one process and bit-identical every time; finished runs are not repeated.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.experiments.kuhn import DECAY, SNAPSHOT_EVERY
from benchmarks.experiments.runs import finished_run, held_out, in_one_process
from benchmarks.report import arguments, write
from configs.load import load_run
from lab.boards import lesson
from lab.examples import MADE
from lab.lessons import Demonstration
from lab.model import build_model, build_tokenizer
from lab.supervised import train_supervised
from learners.advantages.rae import RoleBaselines
from sparring.core.interfaces import Message, PromptFormat
from sparring.evaluation.intervals import intervals, print_table
from sparring.games.boards.positions import TicTacToe, best_moves
from sparring.games.boards.rules import TicTacToeRules
from sparring.games.prompts import END, MARKER_TOKENS, PAD, format_for

BATCH = 384
"""Matches per step, as in the recipe."""
STEPS = 60
"""Steps of the recipe."""
TIMES = (1, 10)
"""Numbers of steps, as multiples of the recipe's."""
RATES = (8.0, 32.0, 128.0)
"""Learning rates of a table's plain gradient steps."""
SHOWN = 1200
"""Batches of demonstrations, as many as the recipe's warm-up has of random matches."""
RECIPE = "spiral_tictactoe"
SCORES = ("win_vs_random", "draw_vs_minimax", "illegal")
SHORT = ["--n-generator-steps", "1", "--evaluation.every", "1", "--evaluation.problems", "4"]
SHORT += ["--curriculum.problems-per-step", "2", "--curriculum.attempts", "2"]
OPPONENT = {"random": lambda state: state.legal_moves, "minimax": best_moves}


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    credit: Literal["match", "board"]
    opponents: Literal["self", "history", "minimax"]


ARMS = [Arm(credit=c, opponents=o) for c, o in product(("match", "board"), ("self", "history", "minimax"))]


def _boards() -> list[TicTacToe]:
    """Returns all reachable boards; each board comes before those that follow from it."""
    found = [TicTacToe()]
    known = set(found)
    for state in found:
        for move in state.legal_moves:
            if (after := state.after(move)) not in known:
                known.add(after)
                found.append(after)
    return found


BOARDS = _boards()
INDEX = {state: i for i, state in enumerate(BOARDS)}
AFTER = np.array(
    [[INDEX[s.after(str(m))] if str(m) in s.legal_moves else -1 for m in range(1, 10)] for s in BOARDS]
)
OVER = np.array([state.payoff_first is not None for state in BOARDS])
PAYOFF = np.array([state.payoff_first or 0.0 for state in BOARDS])
FIRST_MOVES = np.array([state.to_move == 0 for state in BOARDS])


@cache
def bot(name: str) -> np.ndarray:
    """Returns the probabilities of the bot's moves by board."""
    chosen = [OPPONENT[name](s) if s.payoff_first is None else () for s in BOARDS]
    return np.array([[(str(m) in moves) / max(1, len(moves)) for m in range(1, 10)] for moves in chosen])


def policy_of(logits: np.ndarray) -> np.ndarray:
    legal = np.where(AFTER >= 0, logits, -np.inf)
    legal[OVER] = 0
    powers = np.exp(legal - legal.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class TicTacToeTrainer:
    def __init__(self, arm: Arm, seed: int, rate: float) -> None:
        self.arm, self.rate = arm, rate
        self.rng = np.random.default_rng(seed)
        self.logits = np.zeros((len(BOARDS), 9))
        self.baselines = RoleBaselines(DECAY)
        self.steps, self.past = 0, list[np.ndarray]()
        self.earned, self.seen = np.zeros(len(BOARDS)), np.zeros(len(BOARDS))

    def step(self) -> None:
        pi = policy_of(self.logits)
        if self.arm.opponents == "history":
            if self.steps % SNAPSHOT_EVERY == 0:
                self.past.append(pi)
            other = self.past[self.rng.integers(len(self.past))]
        else:
            other = bot("minimax")
        self.steps += 1
        # by match: the side that a bot plays, or -1 if none does
        bots = np.full(BATCH, -1)
        if self.arm.opponents != "self":
            bots[: BATCH // 2] = np.arange(BATCH // 2) % 2
        state = np.zeros(BATCH, int)
        turns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for ply in range(9):
            going = np.flatnonzero(~OVER[state])
            theirs = bots[going] == ply % 2
            chances = np.where(theirs[:, None], other[state[going]], pi[state[going]])
            drawn = (
                chances.cumsum(1) > self.rng.random((len(going), 1)) * chances.sum(1, keepdims=True)
            ).argmax(1)
            turns.append((going[~theirs], state[going][~theirs], drawn[~theirs]))
            state[going] = AFTER[state[going], drawn]
        matches, boards, moves = (np.concatenate(part) for part in zip(*turns, strict=True))
        sides = np.where(FIRST_MOVES[boards], 1.0, -1.0)
        advantages = self._advantages(PAYOFF[state], matches, boards, sides)
        credit = np.zeros_like(self.logits)
        np.add.at(credit, (boards, moves), advantages)
        self.logits += self.rate / BATCH * (credit - pi * credit.sum(-1, keepdims=True))

    def _advantages(
        self, payoffs: np.ndarray, matches: np.ndarray, boards: np.ndarray, sides: np.ndarray
    ) -> np.ndarray:
        """Returns the advantage of each move."""
        returns = sides * payoffs[matches]
        if self.arm.credit == "board":
            baseline = self.earned[boards] / np.maximum(1, self.seen[boards])
            np.add.at(self.earned, boards, returns)
            np.add.at(self.seen, boards, 1)
            return returns - baseline
        first = np.array(self.baselines.advantages("tictactoe", "first", payoffs.tolist()))
        second = np.array(self.baselines.advantages("tictactoe", "second", (-payoffs).tolist()))
        return np.where(sides > 0, first[matches], second[matches])


def outcomes(pi: np.ndarray, opponent: str) -> dict[str, float]:
    """Returns the shares of wins and draws against the opponent, averaged over both sides."""
    won, drawn = 0.0, 0.0
    for side in (0, 1):
        ours = FIRST_MOVES if side == 0 else ~FIRST_MOVES
        chances = np.where(ours[:, None], pi, bot(opponent))
        value = np.stack([(PAYOFF * (1, -1)[side] > 0) & OVER, (PAYOFF == 0) & OVER], 1).astype(float)
        for i in reversed(range(len(BOARDS))):
            if not OVER[i]:
                legal = AFTER[i] >= 0
                value[i] = chances[i, legal] @ value[AFTER[i, legal]]
        won, drawn = won + value[0, 0] / 2, drawn + value[0, 1] / 2
    return {"win": won, "draw": drawn}


def trained(arm: Arm, seed: int, rate: float, times: Sequence[int]) -> dict[str, float]:
    trainer, figures, done = TicTacToeTrainer(arm, seed, rate), dict[str, float](), 0
    for many in times:
        while done < many * STEPS:
            trainer.step()
            done += 1
        pi = policy_of(trainer.logits)
        figures[f"{many}: wins against random"] = outcomes(pi, "random")["win"]
        figures[f"{many}: draws against minimax"] = outcomes(pi, "minimax")["draw"]
    return figures


def compare_tables(seeds: Sequence[int], rates: Sequence[float], times: Sequence[int]) -> dict[str, Any]:
    """Returns the figures by arm and learning rate, and prints the table."""
    uniform = policy_of(np.zeros((len(BOARDS), 9)))
    start = [f"{outcomes(uniform, 'random')['win']:.3f}", f"{outcomes(uniform, 'minimax')['draw']:.3f}"]
    figures: dict[str, Any] = {}
    rows: list[list[object]] = [["moves at random", "", "", *start * len(times)]]
    for arm, rate in product(ARMS, rates):
        found = intervals([trained(arm, seed, rate, times) for seed in seeds])
        figures[f"table, {arm.credit}, {arm.opponents}, {rate:g}"] = {k: v.plain() for k, v in found.items()}
        rows.append([arm.credit, arm.opponents, f"{rate:g}", *found.values()])
    header = [f"{many * BATCH * STEPS:,} matches: {what}" for many in times for what in ("wins", "draws")]
    print_table(
        "a table: wins against random, draws against minimax",
        ["credit by", "opponents", "rate", *header],
        rows,
    )
    return figures


def demonstration(style: PromptFormat, rng: Random) -> Demonstration:
    """Returns one side of a match, without mistakes; the other side makes a random move in half of its turns."""
    state, side = TicTacToe(), rng.randrange(2)
    tokens: list[int] = []
    learned: list[bool] = []
    while state.payoff_first is None:
        move = rng.choice(best_moves(state))
        if state.to_move == side:
            tokens = style.say(tokens, Message(brief=state.brief(), full=state.full()))
            completion = style.completion(move)
            learned += [False] * (len(tokens) - len(learned)) + [True] * len(completion)
            tokens = [*tokens, *completion]
        elif rng.random() < 0.5:
            move = rng.choice(state.legal_moves)
        state = state.after(move)
    return Demonstration(tokens, learned)


def taught(steps: int, output: Path) -> Path:
    """Returns the directory of a model that was trained on `steps` batches. A missing model is made."""
    directory = output / f"tictactoe-taught-{steps}"
    if not directory.is_dir():
        config = load_run(["--config", RECIPE])[0].to_config()
        assert isinstance(config.game, TicTacToeRules)
        warm_up = MADE["tictactoe"].warm_up
        texts = lesson(config.game, "generator", warm_up).texts
        tokenizer = build_tokenizer(texts, MARKER_TOKENS, PAD, END)
        style, rng = format_for(tokenizer), Random("a player who makes no mistakes")
        model = build_model(tokenizer, seed=0)
        settings = {
            "batch_size": warm_up.batch_size,
            "learning_rate": warm_up.learning_rate,
        }
        torch.set_num_threads(1)
        train_supervised(model, lambda: demonstration(style, rng), steps=steps, **settings)
        draft = Path(tempfile.mkdtemp(dir=output))
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        draft.rename(directory)
    return directory


def compare_models(seeds: Sequence[int], shown: int, output: Path, more: Sequence[str]) -> dict[str, Any]:
    """Returns the held-out scores by step, of the recipe's model and of the one that was trained on perfect play.
    Prints the table. more: arguments of every run."""
    figures: dict[str, Any] = {}
    rows: list[list[object]] = []
    for batches in (0, shown):
        model = ["--generator-model", str(taught(batches, output))] if batches else []
        given = [*in_one_process(RECIPE), *model, *more]
        name = f"tictactoe-from-{batches}"
        runs = [
            dict(held_out(finished_run(RECIPE, f"{name}-seed{n}", output, ["--seed", str(n), *given])))
            for n in seeds
        ]
        found = {step: intervals([{k: run[step].get(k) for k in SCORES} for run in runs]) for step in runs[0]}
        figures[f"shown {batches} batches"] = {
            step: {k: v.plain() for k, v in of.items()} for step, of in found.items()
        }
        rows += [
            [f"{batches:,}" if batches else "at random", step, *(of.get(name, "-") for name in SCORES)]
            for step, of in found.items()
        ]
    print_table("the recipe's model", ["batches of matches shown", "steps of play", *SCORES], rows)
    return figures


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("output/experiments"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    if not options.quick:
        options.output.mkdir(parents=True, exist_ok=True)
        figures = compare_tables(options.seeds, RATES, TIMES)
        write(options.json, figures | compare_models(options.seeds, SHOWN, options.output, []), {})
        return
    with tempfile.TemporaryDirectory() as directory:
        figures = compare_tables([1], RATES[:1], TIMES[:1])
        write(options.json, figures | compare_models([1], 3, Path(directory), SHORT), {})


if __name__ == "__main__":
    main()
