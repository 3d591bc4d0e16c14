"""Reports over runs: each is a table of means with 95% intervals, or None if the runs do not have what the table is
about.

They cover capacity, cross-validation, ablations, entropy, other models, tokenizers, speed of convergence, unseen
categories, transfer and sample complexity. The first setting is the baseline. Whether an expectation holds (a larger
model trains better, entropy falls) is measured, never assumed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from statistics import fmean, stdev
from typing import Any

from sparring.core.source import parse
from sparring.evaluation.best_of import spearman
from sparring.evaluation.intervals import Interval, interval
from sparring.sweeps.runs import RunFiles
from sparring.sweeps.statistics import (
    band,
    by_tag,
    correlation,
    correlation_range,
    falls,
    steps_to,
    thirds,
)
from sparring.sweeps.tables import Cell, Table
from sparring.tracking.runs import players_of

Groups = Mapping[str, Sequence[RunFiles]]
"""Runs by setting. `summary` and `completeness` take all runs, the other reports those that are `counted`."""


def by_setting(runs: Iterable[RunFiles]) -> dict[str, list[RunFiles]]:
    groups: dict[str, list[RunFiles]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    return groups


def counted(groups: Groups) -> dict[str, list[RunFiles]]:
    """Returns the finished runs of each setting; if a setting has none, those that were stopped on purpose."""

    def of_state(runs: Sequence[RunFiles], state: str) -> list[RunFiles]:
        return [run for run in runs if run.state == state]

    return {s: of_state(runs, "finished") or of_state(runs, "stopped") for s, runs in groups.items()}


def summary(groups: Groups, metric: str) -> Table:
    """Returns how many runs each setting has, and how well they did."""
    rows: list[list[Cell]] = []
    for setting, that_count in counted(groups).items():
        states = [run.state for run in groups[setting]]
        steps = sorted({run.rows[-1]["step"] for run in that_count if run.rows})
        rows.append(
            [
                setting,
                f"{states.count('finished')} of {len(states)}",
                ", ".join(
                    f"{states.count(s)} {s}" for s in ("stopped", "failed", "unfinished") if s in states
                ),
                over(that_count, lambda run: run.before(metric)),
                over(that_count, lambda run: run.last(metric)),
                "-".join(str(step) for step in dict.fromkeys([*steps[:1], *steps[-1:]])),
                over(that_count, lambda run: run.results.get("wall_time_s", {}).get("total")),
            ]
        )
    said = [
        f"{run.directory.name} ({run.setting}) failed: {run.error}"
        for runs in groups.values()
        for run in runs
        if run.state == "failed"
    ]
    if any({"finished", "stopped"} <= {run.state for run in runs} for runs in groups.values()):
        said.append("where some runs of a setting were stopped, the mean of the finished ones flatters it")
    return Table(
        title=f"{metric}, by setting",
        header=("setting", "finished", "else", "before", "after", "steps", "seconds"),
        rows=rows,
        note="\n".join(said),
    )


def impact(groups: Groups, metric: str) -> Table | None:
    """Returns what each setting changes against the first, paired by seed or fold."""
    (base, first), *others = groups.items()
    at = {run.replicate: run.last(metric) for run in first}
    rows: list[list[Cell]] = []
    for setting, runs in others:
        pairs = [(run, run.last(metric), at.get(run.replicate)) for run in runs]
        change = over_units((unit(run), a - b) for run, a, b in pairs if a is not None and b is not None)
        if change is not None:
            rows.append([setting, change, len(change.by_seed), _measurable(change)])
    return _table(
        f"{metric}, change against {base!r}, paired",
        ("setting", "change", "pairs", "measurable"),
        rows,
        "measurable: the 95% interval of the change does not hold 0",
    )


def convergence(groups: Groups, metric: str, threshold: float | None, mode: str) -> Table | None:
    """Returns the steps until the metric reaches a threshold. Default: half of the way from its mean before training to
    the best setting's mean afterwards."""
    found = [end.mean for end in after(groups, metric).values()]
    before = over(chain(*groups.values()), lambda run: run.before(metric))
    if threshold is None:
        if not found or before is None:
            return None
        threshold = (before.mean + (max if mode == "max" else min)(found)) / 2
    rows: list[list[Cell]] = []
    for setting, runs in groups.items():
        steps = [(unit(run), steps_to(run.curve(metric), threshold, mode)) for run in runs]
        reached = sum(step is not None for _, step in steps)
        rows.append([setting, f"{reached} of {len(steps)}", over_units(steps)])
    return Table(
        title=f"steps until {metric} is {'at least' if mode == 'max' else 'at most'} {threshold:.3g}",
        header=("setting", "reached", "steps"),
        rows=rows,
        note="steps: of the runs that reach it",
    )


def series(groups: Groups, metric: str, amount: Callable[[RunFiles], float | None]) -> Table | None:
    """Returns training and validation results by amount: a model's size, the number of problems, or a key's number."""
    amounts = {
        setting: next((a for r in runs if (a := amount(r)) is not None), None)
        for setting, runs in groups.items()
    }
    known = {setting: a for setting, a in amounts.items() if a is not None}
    if len(set(known.values())) < 2:
        return None
    ordered = sorted(known, key=lambda setting: known[setting])
    train = {s: over(groups[s], training_reward) for s in ordered}
    held_out = {s: over(groups[s], lambda run: run.last(metric)) for s in ordered}
    said = []
    for name, means in (("training reward", train), (metric, held_out)):
        values = {s: found.mean for s in ordered if (found := means[s]) is not None}
        drops = falls(list(values.values()))
        verdict = "rises, or stays, throughout" if not drops else f"falls at {list(values)[drops[0]]}"
        said.append(f"{name} {verdict}")
    ranks = []
    for replicate in dict.fromkeys(run.replicate for s in ordered for run in groups[s]):
        points = [
            (known[s], value)
            for s in ordered
            for run in groups[s]
            if run.replicate == replicate and (value := run.last(metric)) is not None
        ]
        rank = spearman(*zip(*points, strict=True)) if len(points) > 1 else None
        ranks.append((_fold(replicate) or replicate, rank))
    if (ranked := over_units(ranks)) is not None:
        said.append(f"rank correlation of amount and {metric} {ranked}")
    return Table(
        title=f"{metric} by amount",
        header=("setting", "amount", "training reward", metric),
        rows=[[s, known[s], train[s], held_out[s]] for s in ordered],
        note="; ".join(said),
    )


def spread(groups: Groups, metric: str) -> Table | None:
    """Returns how much the metric varies over folds or seeds."""
    rows: list[list[Cell]] = []
    for setting, runs in groups.items():
        found = over(runs, lambda run: run.last(metric))
        if found is not None and len(found.by_seed) > 1:
            values = found.by_seed
            rows.append(
                [setting, len(values), found, stdev(values), stdev(values) ** 2, min(values), max(values)]
            )
    return _table(
        f"{metric} over folds or seeds",
        ("setting", "folds or seeds", "mean", "deviation", "variance", "least", "most"),
        rows,
    )


def entropy(groups: Groups) -> Table | None:
    """Returns each policy's entropy, in nats per token, in the first and in the last third of its updates."""
    rows: list[list[Cell]] = []
    for setting, runs in groups.items():
        for policy in ("generator", "discriminator"):
            curves = [(run, [value for _, value in run.curve(f"{policy}.entropy")]) for run in runs]
            if ends := _ends(curves):
                fell = sum(last < first for _, first, last in ends)
                rows.append([setting, policy, *_from_to(ends), f"{fell} of {len(ends)}"])
    return _table(
        "entropy, first and last third of the updates",
        ("setting", "policy", "first", "last", "change", "falls in"),
        rows,
    )


def same_tasks(groups: Groups) -> Table | None:
    """Compares the settings on the held-out problems that both were measured on, problem by problem."""
    (base, first), *others = groups.items()
    at = _by_task(first)
    rows: list[list[Cell]] = []
    for setting, runs in others:
        found = _by_task(runs)
        shared = sorted(at.keys() & found.keys())
        if found:
            change = interval([found[task] - at[task] for task in shared]) if shared else None
            rows.append(
                [setting, f"{len(shared)} of {len(at.keys() | found.keys())}", change, _measurable(change)]
            )
    return _table(
        f"share of a problem's tests passed, change against {base!r} on the same problems",
        ("setting", "problems in common", "change", "measurable"),
        rows,
        "the interval is over problems, each problem's figure a mean over the runs",
    )


def tokenizers(
    programs: Sequence[str], by_name: Mapping[str, Callable[[str], Sequence[str]]]
) -> Table | None:
    """Compares how tokenizers divide the same programs."""
    if len(by_name) < 2 or not programs:
        return None
    pieces = {name: [list(cut(program)) for program in programs] for name, cut in by_name.items()}
    base = next(iter(by_name))
    rows: list[list[Cell]] = []
    for name, cut_up in pieces.items():
        lengths = [len(of_program) for of_program in cut_up]
        per_token = sum(map(len, programs)) / max(1, sum(lengths))
        unlike = fmean(one != other for one, other in zip(pieces[base], cut_up, strict=True))
        rows.append(
            [name, interval([float(n) for n in lengths]), per_token, None if name == base else unlike]
        )
    return Table(
        title=f"tokenizers on {len(programs)} programs",
        header=("setting", "tokens a program", "characters a token", f"cut unlike {base!r}"),
        rows=rows,
    )


def zero_shot(groups: Groups) -> Table | None:
    """Returns the share of held-out problems solved by tag, for tags that occur in training and for those that do
    not."""
    rows: list[list[Cell]] = []
    for setting, runs in groups.items():
        found: dict[tuple[bool, str], list[tuple[object, float]]] = {}  # by whether training has it, and tag
        gaps: list[tuple[object, float]] = []
        sizes: dict[tuple[bool, str], int] = {}
        for run in runs:
            tags = {task: tuple(of) for task, of in run.categories.get("held_out", {}).items()}
            trained = set(run.categories.get("trained", ()))
            solved = {task: float(history[-1][1] == 1.0) for task, history in run.tasks().items()}
            for tag, values in by_tag(solved, tags).items():
                key = tag in trained, tag
                found.setdefault(key, []).append((unit(run), fmean(values)))
                sizes[key] = max(len(values), sizes.get(key, 0))
            new = [v for task, v in solved.items() if set(tags.get(task, ())) - trained]
            known = [v for task, v in solved.items() if task in tags and not set(tags[task]) - trained]
            if new and known:
                gaps.append((unit(run), fmean(new) - fmean(known)))
        for key in sorted(found):
            seen, tag = key
            shown = "trained" if seen else "zero-shot"
            rows.append([setting, tag, shown, sizes[key], over_units(found[key])])
        if gaps:
            rows.append([setting, "(difference)", "zero-shot - trained", None, over_units(gaps)])
    return _table(
        "held-out problems solved, by category",
        ("setting", "category", "in training", "problems", "solved"),
        rows,
    )


def transfer(groups: Groups, similarity: Callable[[RunFiles], Mapping[str, float]]) -> Table | None:
    """Returns whether held-out problems that are more similar to a training problem gain more.

    similarity: returns, for a run, how similar each held-out problem is to the nearest training problem, 0 to 1.
    """
    rows: list[list[Cell]] = []
    for setting, runs in groups.items():
        gains: dict[str, list[float]] = {}
        nearest: dict[str, float] = {}
        for run in runs:
            tasks_of_run = run.tasks()
            if not tasks_of_run.keys() <= nearest.keys():  # folds hold out other problems
                nearest |= similarity(run)
            for task, history in tasks_of_run.items():
                if len(history) > 1:
                    gains.setdefault(task, []).append(history[-1][1] - history[0][1])
        tasks = [task for task in gains if task in nearest]
        r = correlation([nearest[t] for t in tasks], [fmean(gains[t]) for t in tasks])
        if r is not None:
            low, high = correlation_range(r, len(tasks))
            rows.append([setting, len(tasks), r, f"{low:.3f} to {high:.3f}"])
    return _table(
        "correlation of likeness to training with gain, over held-out problems",
        ("setting", "problems", "correlation", "95% interval"),
        rows,
    )


def completeness(groups: Groups) -> Table | None:
    """Returns the training steps whose row lacks a reward, a loss or a success rate."""
    rows: list[list[Cell]] = []
    for setting, runs in groups.items():
        lacking = [
            (run.directory.name, row["step"], names)
            for run in runs
            for row in run.rows
            if (names := missing(row))
        ]
        steps = sum(row["step"] > 0 for run in runs for row in run.rows)
        example = "{}, step {}: {}".format(*lacking[0][:2], ", ".join(lacking[0][2])) if lacking else ""
        if steps:
            rows.append([setting, steps, steps - len(lacking), example])
    return _table(
        "steps with reward, loss and success rate",
        ("setting", "steps", "complete", "the first that is not"),
        rows,
    )


def missing(row: Mapping[str, Any]) -> list[str]:
    """Returns what a step's row lacks. A policy that had no sample in the step has no loss there, which counts as
    well."""
    if row["step"] == 0:
        return []
    players = players_of([row])
    lacking = [f"{player}_reward" for player in players if row[f"{player}_reward"] is None]
    lacking += [] if players else ["reward"]
    if success_rate(row) is None:
        lacking.append("success rate")
    learned = [policy for policy in ("generator", "discriminator") if row.get(policy)]
    lacking += [f"{policy}.policy_loss" for policy in learned if row[policy].get("policy_loss") is None]
    return lacking + ([] if learned else ["loss"])


def success_rate(row: Mapping[str, Any]) -> float | None:
    """Returns the generator's success rate in a training step: the share of attempts that solve the problem or, if the
    game does not record that, of tests passed."""
    parts = row.get("generator_components") or {}
    return parts.get("solved", parts.get("pass_rate"))


def syntax(groups: Groups, programs: Callable[[RunFiles], Sequence[str]]) -> Table | None:
    """Returns the share of a run's programs that are valid Python, in the first and in the last third of its
    training."""
    rows: list[list[Cell]] = []
    for setting, runs in groups.items():
        shares = [(run, [float(is_python(p)) for p in programs(run)]) for run in runs]
        if ends := _ends((run, of) for run, of in shares if any(of)):
            rows.append([setting, sum(len(of) for _, of in shares), *_from_to(ends)[:2]])
    return _table(
        "training programs that are valid Python, first and last third",
        ("setting", "programs", "first", "last"),
        rows,
    )


def is_python(program: str) -> bool:
    try:
        return bool(parse(program).body)
    except SyntaxError:
        return False


def curves(groups: Groups, metric: str) -> dict[str, dict[str, list[tuple[int, Interval]]]]:
    """Returns the curves of each setting: {"training": reward by step, "validation": metric by step}, with intervals
    over its runs."""
    return {
        setting: {
            "training": _band((unit(run), run.curve(training_column(run))) for run in runs),
            "validation": _band((unit(run), run.curve(metric)) for run in runs),
        }
        for setting, runs in groups.items()
        if runs
    }


def after(groups: Groups, metric: str) -> dict[str, Interval]:
    """Returns the last value of the metric, by setting."""
    found = {s: over(runs, lambda run: run.last(metric)) for s, runs in groups.items()}
    return {setting: end for setting, end in found.items() if end is not None}


def training_column(run: RunFiles) -> str:
    """Returns the column with the reward of the player that learns first: the generator's, in self-play the first
    player's."""
    players = players_of(run.rows)
    return "generator_reward" if "generator" in players or not players else f"{players[0]}_reward"


def training_reward(run: RunFiles) -> float | None:
    """Returns the mean reward over the last third of the steps."""
    found = thirds([value for _, value in run.curve(training_column(run))])
    return found[1] if found else None


def _by_task(runs: Sequence[RunFiles]) -> dict[str, float]:
    """Returns the last value of each held-out problem, as a mean over the runs."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for task, history in run.tasks().items():
            found.setdefault(task, []).append(history[-1][1])
    return {task: fmean(values) for task, values in found.items()}


# ---------------------------------------------------------------------- what an interval is over
def unit(run: RunFiles) -> object:
    """Returns what the run is a sample of: its fold, if there are folds (its seeds share the fold's problems), else its
    seed. Two runs of one setting with one seed are one sample."""
    return _fold(run.replicate) or run.config.get("seed", run.directory)


def _fold(replicate: str) -> str:
    """Returns the fold of a replicate, or an empty text. Example: fold2-seed1 -> fold2; seed1 -> empty"""
    fold, dash, _ = replicate.partition("-")
    return fold if dash else ""


def over(runs: Iterable[RunFiles], value: Callable[[RunFiles], float | None]) -> Interval | None:
    return over_units((unit(run), value(run)) for run in runs)


def over_units(values: Iterable[tuple[object, float | None]]) -> Interval | None:
    """Returns the interval over units, each with the mean of its known values; None if no value is known."""
    known: dict[object, list[float]] = {}
    for of, value in values:
        if value is not None:
            known.setdefault(of, []).append(value)
    return interval([fmean(found) for found in known.values()]) if known else None


def _ends(curves: Iterable[tuple[RunFiles, Sequence[float]]]) -> list[tuple[object, float, float]]:
    """Returns (unit, mean of the first third, mean of the last third) for each curve that is long enough."""
    return [(unit(run), *found) for run, curve in curves if (found := thirds(curve)) is not None]


def _from_to(ends: Sequence[tuple[object, float, float]]) -> list[Interval | None]:
    """Returns the intervals of the first third, of the last third, and of the change."""
    return [
        over_units((of, first) for of, first, _ in ends),
        over_units((of, last) for of, _, last in ends),
        over_units((of, last - first) for of, first, last in ends),
    ]


def _band(curves: Iterable[tuple[object, Sequence[tuple[int, float]]]]) -> list[tuple[int, Interval]]:
    """Returns intervals over units (see over_units), by step."""
    of_unit: dict[object, list[Sequence[tuple[int, float]]]] = {}
    for of, curve in curves:
        of_unit.setdefault(of, []).append(curve)
    return band([[(step, found.mean) for step, found in band(of)] for of in of_unit.values()])


def _measurable(change: Interval | None) -> str:
    if change is None or len(change.by_seed) < 2:
        return "one run: not known"
    return "yes" if abs(change.mean) > change.half_width else "no"


def _table(
    title: str, header: tuple[str, ...], rows: Sequence[Sequence[Cell]], note: str = ""
) -> Table | None:
    """Returns None if there are no rows."""
    return Table(title=title, header=header, rows=rows, note=note) if rows else None
