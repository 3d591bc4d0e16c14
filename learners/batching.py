"""Converts played episodes to samples of one policy: which trajectories are compared, what each earns, which tokens are
trained.

Pure: uses neither torch nor Ray. The advantages of critic-free estimators are estimated here, group by group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from learners.advantages.estimate import Advantages
from learners.settings import LearnerSettings
from sparring.core.batch import SampleSpec, TokenSelection
from sparring.core.episode import Episode, Trajectory


class Credit:
    """Assigns credit for one policy and keeps its estimator's state from batch to batch."""

    def __init__(
        self,
        settings: LearnerSettings,
        game: str,
        players: Sequence[str],
        *,
        one_stage: bool = False,
        by_turn: bool = False,
    ) -> None:
        """Creates the estimator.

        Args:
            players: Players that the policy plays. Each player has separate baselines.
            one_stage: Whether only tokens of the stage under training are trained. The tokens that follow that stage
                are left out of the sample unless the credit needs them, so the critic does not learn their values.
            by_turn: Whether GAE takes a turn as one step.
        """
        self._advantages = Advantages(settings)
        self._settings, self._game, self._players = settings, game, players
        self._one_stage, self._by_turn = one_stage, by_turn

    def samples(
        self, episodes: Sequence[Episode], stage: int
    ) -> tuple[tuple[SampleSpec, ...], dict[str, float]]:
        """Returns (samples, metrics on what was left out).

        Args:
            stage: The stage under training.
        """
        whole = TokenSelection(mask_truncated=self._settings.mask_truncated, by_turn=self._by_turn)
        first = branch = whole
        if self._one_stage:
            branch = whole._replace(stages=(stage,), turns=stage)
            first = branch._replace(turns=None) if _credit_needs_later_tokens(self._settings) else branch

        def reading(attempt: Trajectory) -> TokenSelection:
            if attempt.place is not None:
                return branch
            return first if attempt.number == 1 else whole  # a later try is one turn, trained at any stage

        samples: list[SampleSpec] = []
        groups_seen = without_signal = 0
        for player in self._players:
            groups = _groups(episodes, player)
            credits = self._advantages.credit(
                [[t.reward for t in group if t.reward is not None] for _, group in groups],
                game=self._game,
                player=player,
                parents=[episode.problem_id for episode, _ in groups],
            )
            for (episode, group), credit in zip(groups, credits, strict=True):
                if credit is None:
                    continue
                for attempt, earned in zip(group, credit, strict=True):
                    assert attempt.kept is not None, "nothing is learnt from held-out play"
                    place = episode.transcripts, attempt.kept.index
                    samples.append(SampleSpec(*place, player, *earned, reading(attempt)))
            groups_seen += len(groups)
            without_signal += credits.count(None)
        dropped = sum(t.player in self._players for e in episodes for t in e.dropped())
        share = without_signal / max(1, groups_seen)
        return tuple(samples), {"groups_without_signal": share, "dropped": float(dropped)}

    def state_dict(self) -> dict[str, Any]:
        """Returns JSON-compatible values."""
        return self._advantages.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._advantages.load_state_dict(state)


def _credit_needs_later_tokens(settings: LearnerSettings) -> bool:
    """Returns whether a token's advantage depends on the tokens that follow it, and not only on the reward at the end.

    Under GAE it does if the reward is discounted over the tokens (gamma), if later values are bootstrapped from
    (lambda), or if later tokens have rewards of their own (a KL penalty).
    """
    estimator = settings.estimator
    return estimator.kind == "gae" and (
        estimator.gamma < 1 or estimator.lam < 1 or settings.kl.kind == "reward"
    )


def _groups(episodes: Sequence[Episode], player: str) -> list[tuple[Episode, list[Trajectory]]]:
    """Returns (episode, trajectories that share a baseline) for each group. If trajectories branch at the stage under
    training, each prefix is a group with one trajectory per branch, whose reward is the mean over the branch's
    continuations."""
    groups: list[tuple[Episode, list[Trajectory]]] = []
    for episode in episodes:
        judged = episode.judged(player)
        if not judged or judged[0].place is None:
            groups += [(episode, group) for group in episode.groups(player)]
            continue
        tree: dict[int, dict[int, list[Trajectory]]] = {}
        for attempt in judged:
            assert attempt.place is not None
            prefix, branch = attempt.place
            tree.setdefault(prefix, {}).setdefault(branch, []).append(attempt)
        for branches in tree.values():
            values = [fmean(t.reward or 0.0 for t in branch) for branch in branches.values()]
            group = [
                replace(branch[0], reward=value)
                for branch, value in zip(branches.values(), values, strict=True)
            ]
            groups.append((episode, group))
    return groups
