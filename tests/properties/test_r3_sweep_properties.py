"""Properties of the code golf requirements (R3) about experiments, by their numbers: what the reports of sweeps say of
runs, whose files are written by what writes a real run's."""

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.core.episode import Completion, Episode, FinishReason, Trajectory, Turn
from sparring.core.evaluation import Scores
from sparring.core.play import PlayResult
from sparring.evaluation.best_of import spearman
from sparring.evaluation.intervals import Interval, interval
from sparring.sweeps import reports
from sparring.sweeps.plots import learning_curves
from sparring.sweeps.reporting import programs_of, task_rows
from sparring.sweeps.runs import RunFiles
from sparring.sweeps.statistics import correlation_range, steps_to
from sparring.sweeps.tables import Table
from sparring.tracking.run_record import RunRecord
from sparring.tracking.step import episode_metrics
from tests.recorded import lines

examples = settings(max_examples=100, deadline=None)
METRIC = "generator_pass_rate"
eighths = st.integers(0, 8).map(lambda n: n / 8)
"""Exact in floating point, so that equal sums are equal."""


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def written(
    directory: Path,
    setting: str,
    replicate: str,
    *,
    held_out: Sequence[float] = (),
    rewards: Sequence[float] = (),
    entropies: Sequence[float] = (),
    tasks: Sequence[Mapping[str, float]] = (),
    amount: float | None = None,
) -> RunFiles:
    """A finished run. held_out, tasks: by evaluation, from step 0. rewards, entropies: by step, from 1."""
    run = directory / f"{setting}-{replicate}"
    run.mkdir()
    record = RunRecord(run)
    for step in range(max(len(held_out), len(rewards) + 1, len(entropies) + 1)):
        row: dict[str, Any] = {"step": step}
        if step < len(held_out):
            row["held_out"] = {METRIC: held_out[step]}
        if 0 < step <= len(rewards):
            row["generator_reward"] = rewards[step - 1]
        if 0 < step <= len(entropies):
            row["generator"] = {"entropy": entropies[step - 1]}
        record.add(row)
    for step, found in enumerate(tasks):
        record.add_evaluation(step, Scores({}, 0.0, found))
    record.finish({"wall_time_s": {"total": 1.0}})
    return RunFiles(run, setting, replicate, amount)


def cells(table: Table | None, name: str) -> dict[Any, Any]:
    """A column, by the first one."""
    assert table is not None
    place = table.header.index(name)
    return {row[0]: row[place] for row in table.rows}


def mean_of(found: Any) -> float:
    assert isinstance(found, Interval)
    return found.mean


# ---------------------------------------------------------------------- capacity, data
series = st.dictionaries(st.integers(1, 1000), st.tuples(eighths, eighths), min_size=2, max_size=5)


# R3, property 37: capacity-performance relationship. R3, property 50: sample complexity monotonicity.
@examples
@given(series, st.integers(1, 3))
def test_37_and_50_performance_by_amount_is_ordered_and_every_fall_is_named(by_amount, seeds):
    with folder() as directory:
        runs = [
            written(directory, f"s{n}", f"seed{i}", held_out=[0, value], rewards=[reward] * 3, amount=n)
            for n, (reward, value) in by_amount.items()
            for i in range(seeds)
        ]
        table = reports.series(reports.by_setting(runs), METRIC, lambda run: run.amount)
    assert table is not None
    amounts = sorted(by_amount)
    assert [row[1] for row in table.rows] == amounts
    assert [mean_of(row[2]) for row in table.rows] == [by_amount[a][0] for a in amounts]
    assert [mean_of(row[3]) for row in table.rows] == [by_amount[a][1] for a in amounts]
    for name, part in (("training reward", 0), (METRIC, 1)):
        values = [by_amount[a][part] for a in amounts]
        rises = all(a <= b for a, b in pairwise(values))
        assert (f"{name} rises, or stays, throughout" in table.note) == rises
        assert (f"{name} falls at" in table.note) == (not rises)


@examples
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=12))
def test_rank_correlation_is_of_the_order_alone(points):
    xs, ys = zip(*points, strict=True)
    found = spearman(xs, ys)
    if len(set(xs)) < 2 or len(set(ys)) < 2:
        assert found is None
        return
    assert found is not None and -1 <= found <= 1
    assert spearman([x**3 for x in xs], ys) == pytest.approx(found)
    assert spearman([-x for x in xs], ys) == pytest.approx(-found)
    assert spearman(xs, xs) == pytest.approx(1)


# ---------------------------------------------------------------------- several runs of one setting, and of two
# R3, property 39: cross-validation variance.
@examples
@given(st.lists(eighths, min_size=2, max_size=8))
def test_39_the_variance_over_folds_is_measured_and_reported(scores):
    with folder() as directory:
        runs = [written(directory, "baseline", f"fold{i}", held_out=[0, s]) for i, s in enumerate(scores)]
        table = reports.spread(reports.by_setting(runs), METRIC)
    assert cells(table, "folds or seeds") == {"baseline": len(scores)}
    assert cells(table, "variance")["baseline"] == pytest.approx(statistics.variance(scores))
    found = cells(table, "mean")["baseline"]
    assert found == interval(scores) and (found.half_width > 0) == (len(set(scores)) > 1)
    assert (cells(table, "least")["baseline"], cells(table, "most")["baseline"]) == (min(scores), max(scores))


# R3, property 40: ablation impact measurement.
@examples
@given(st.lists(eighths, min_size=2, max_size=6), eighths, st.booleans(), st.randoms())
def test_40_what_a_removed_component_changes_is_measured_seed_by_seed(scores, loss, shuffle, rng):
    """However much seeds differ: each is compared with itself."""
    with folder() as directory:
        base, without = (
            [written(directory, name, f"seed{i}", held_out=[0, s - lost]) for i, s in enumerate(scores)]
            for name, lost in (("baseline", 0), ("without", loss))
        )
        if shuffle:
            rng.shuffle(without)
        table = reports.impact(reports.by_setting([*base, *without]), METRIC)
    change = cells(table, "change")["without"]
    assert (change.mean, change.half_width) == (-loss, 0)
    assert cells(table, "pairs") == {"without": len(scores)}
    assert cells(table, "measurable") == {"without": "yes" if loss else "no"}


def test_40_one_seed_says_of_no_change_whether_it_is_more_than_chance(tmp_path):
    runs = [written(tmp_path, s, "seed1", held_out=[0, v]) for s, v in (("baseline", 0.9), ("without", 0.1))]
    table = reports.impact(reports.by_setting(runs), METRIC)
    assert cells(table, "measurable")["without"] == "one run: not known"


# R3, property 41: entropy decay.
@examples
@given(st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=9, unique=True), min_size=1, max_size=4))
def test_41_whether_entropy_falls_over_a_run_is_said_for_each(curves):
    with folder() as directory:
        runs = [
            written(directory, name, f"seed{i}", entropies=sorted(curve, reverse=name == "confident"))
            for name in ("confident", "unsure")
            for i, curve in enumerate(curves)
        ]
        table = reports.entropy(reports.by_setting(runs))
    count = len(curves)
    assert cells(table, "falls in") == {"confident": f"{count} of {count}", "unsure": f"0 of {count}"}
    change = cells(table, "change")
    assert mean_of(change["confident"]) < 0 < mean_of(change["unsure"])
    first, last = cells(table, "first"), cells(table, "last")
    assert mean_of(last["unsure"]) - mean_of(first["unsure"]) == pytest.approx(mean_of(change["unsure"]))


# R3, property 45: optimizer convergence tracking.
@examples
@given(st.lists(st.lists(eighths, min_size=1, max_size=8), min_size=1, max_size=4), eighths)
def test_45_convergence_is_the_first_step_at_the_threshold(curves, threshold):
    expected = [next((i for i, value in enumerate(curve) if value >= threshold), None) for curve in curves]
    with folder() as directory:
        runs = [written(directory, "adamw", f"seed{i}", held_out=curve) for i, curve in enumerate(curves)]
        assert [steps_to(run.curve(METRIC), threshold) for run in runs] == expected
        assert [steps_to([(s, -v) for s, v in r.curve(METRIC)], -threshold, "min") for r in runs] == expected
        table = reports.convergence(reports.by_setting(runs), METRIC, threshold, "max")
    reached = [step for step in expected if step is not None]
    assert cells(table, "reached") == {"adamw": f"{len(reached)} of {len(curves)}"}
    assert cells(table, "steps")["adamw"] == (interval(reached) if reached else None)


# ---------------------------------------------------------------------- other models
by_problem = st.dictionaries(st.sampled_from("abcdefgh"), eighths, min_size=1)


# R3, property 43: architecture comparison.
@examples
@given(by_problem, by_problem)
def test_43_two_models_are_compared_on_the_problems_that_both_were_measured_on(small, large):
    with folder() as directory:
        runs = [
            written(directory, n, "seed1", tasks=[{}, t]) for n, t in (("small", small), ("large", large))
        ]
        table = reports.same_tasks(reports.by_setting(runs))
    shared = sorted(small.keys() & large.keys())
    in_common = f"{len(shared)} of {len(small.keys() | large.keys())}"
    assert cells(table, "problems in common")["large"] == in_common
    change = cells(table, "change")["large"]
    assert change == (interval([large[t] - small[t] for t in shared]) if shared else None)


sources = st.lists(
    st.sampled_from(["def f(n):", "return n", "n + 1", "x=1", "", "aa", "é"]), min_size=1, max_size=4
)


# R3, property 44: tokenization strategy impact.
@examples
@given(st.lists(sources.map("\n".join), min_size=1, max_size=6, unique=True))
def test_44_two_tokenizers_on_the_same_code_are_told_apart(programs):
    table = reports.tokenizers(programs, {"letters": list, "lines": str.splitlines, "again": list})
    unlike = cells(table, f"cut unlike {'letters'!r}")
    assert unlike["again"] == 0 and unlike["letters"] is None
    assert unlike["lines"] == statistics.fmean(list(p) != p.splitlines() for p in programs)
    assert cells(table, "tokens a program")["letters"] == interval([float(len(p)) for p in programs])
    assert reports.tokenizers(programs, {"letters": list}) is None


# ---------------------------------------------------------------------- generalization
tagged = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(
        st.sets(st.sampled_from(["rows", "colours", "new-1", "new-2"])), st.sampled_from([0.0, 0.5, 1.0])
    ),
    min_size=1,
)


# R3, property 48: zero-shot performance measurement.
@examples
@given(tagged)
def test_48_every_held_out_category_has_its_score_and_whether_training_has_it(problems):
    with folder() as directory:
        run = written(directory, "s", "seed1", tasks=[{p: rate for p, (_, rate) in problems.items()}])
        tags = {p: sorted(of) for p, (of, _) in problems.items()}
        RunRecord(run.directory).write_categories(tags, ["rows", "colours", "rows", "never-held-out"])
        table = reports.zero_shot(reports.by_setting([run]))
    categories = {tag for of, _ in problems.values() for tag in of}
    rows = {row[1]: row for row in table.rows} if table else {}
    for tag in categories:
        rates = [rate for of, rate in problems.values() if tag in of]
        _, _, where, count, solved = rows[tag]
        assert where == ("zero-shot" if tag.startswith("new") else "trained") and count == len(rates)
        assert mean_of(solved) == pytest.approx(sum(rate == 1.0 for rate in rates) / len(rates))
    new = [rate == 1.0 for of, rate in problems.values() if of & {"new-1", "new-2"}]
    known = [rate == 1.0 for of, rate in problems.values() if not of & {"new-1", "new-2"}]
    assert rows.keys() == categories | ({"(difference)"} if new and known and table else set())
    if "(difference)" in rows:
        gap = statistics.fmean(new) - statistics.fmean(known)
        assert mean_of(rows["(difference)"][-1]) == pytest.approx(gap)


# R3, property 49: transfer learning correlation.
@examples
@given(
    st.lists(st.integers(0, 16), min_size=2, max_size=12),
    st.sampled_from([1.0, -1.0]),
    st.lists(st.integers(-3, 3), min_size=12, max_size=12),
)
def test_49_likeness_that_helps_correlates_with_gain_and_its_interval_says_how_surely(likeness, sign, noise):
    similar = {f"p{i}": n / 16 for i, n in enumerate(likeness)}

    def correlated(directory: Path, name: str, gains: Mapping[str, float]) -> Table | None:
        tasks = [dict.fromkeys(gains, 0.5), {p: 0.5 + g for p, g in gains.items()}]
        run = written(directory, name, "seed1", tasks=tasks)
        return reports.transfer(reports.by_setting([run]), lambda _: similar)

    noises = {p: s / 4 + n / 16 for (p, s), n in zip(similar.items(), noise, strict=False)}
    with folder() as directory:
        clear = correlated(directory, "clear", {p: sign * s / 4 for p, s in similar.items()})
        noisy = correlated(directory, "noisy", noises)
    if len(set(likeness)) < 2:
        assert clear is None and noisy is None
        return
    assert cells(clear, "correlation")["clear"] == pytest.approx(sign)
    for found in filter(None, (clear, noisy)):
        r = next(iter(cells(found, "correlation").values()))
        low, high = correlation_range(r, len(likeness))
        assert -1 <= low <= r <= high <= 1
        assert len(likeness) >= 4 or (low, high) == (-1, 1)


# ---------------------------------------------------------------------- a run's own records
def attempt(number: int, reward: float, solved: bool, program: str = "x = 1") -> Trajectory:
    completion = Completion(tokens=(1,), logprobs=(0.0,), version=1, finish_reason=FinishReason.STOP)
    return Trajectory(
        player="generator",
        attempt=number,
        turns=[Turn(stage=1, prompt_tokens=(1,), completion=completion, text="x")],
        reward=reward,
        components={"solved": float(solved)},
        artifact=program,
    )


attempts = st.lists(
    st.tuples(st.sampled_from(["p", "q", "r"]), eighths, st.booleans()), min_size=1, max_size=8
)


def played(drawn: Sequence[tuple[str, float, bool]]) -> list[Episode]:
    episodes = {problem: Episode(problem_id=problem, trajectories=[]) for problem, *_ in drawn}
    for i, (problem, reward, solved) in enumerate(drawn):
        episodes[problem].trajectories.append(attempt(i, reward, solved))
    return list(episodes.values())


# R3, property 25: metric logging completeness.
@examples
@given(attempts, st.sampled_from(["generator_reward", "solved", "policy_loss", "learner"]))
def test_25_a_step_has_reward_loss_and_success_rate_and_what_lacks_is_named(drawn, lost):
    result = PlayResult(episodes=played(drawn), sandbox={}, spans=[("generate", 0.0, 1.0)])
    row = {"step": 1} | episode_metrics(["generator"], result)
    row["generator"] = {"policy_loss": 0.1}
    assert reports.missing(row) == [] == reports.missing({"step": 0, "held_out": {}})
    assert reports.success_rate(row) == pytest.approx(statistics.fmean(solved for *_, solved in drawn))
    if lost == "solved":
        row["generator_components"] = {}
        expected = ["success rate"]
    elif lost == "generator_reward":
        row[lost] = None
        expected = ["generator_reward"]
    else:
        row["generator"] = {} if lost == "learner" else {"left_out": 2}
        expected = ["loss"] if lost == "learner" else ["generator.policy_loss"]
    assert reports.missing(row) == expected
    with folder() as directory:
        run = written(directory, "s", "seed1")
        RunRecord(run.directory).add(row)
        table = reports.completeness(reports.by_setting([run]))
    assert (cells(table, "steps"), cells(table, "complete")) == ({"s": 1}, {"s": 0})
    assert expected[0] in cells(table, "the first that is not")["s"]


# R3, property 28: syntax validation.
@examples
@given(st.lists(st.booleans(), min_size=2, max_size=9))
def test_28_the_share_of_valid_python_among_a_runs_programs_is_reported(valid):
    texts = ["def f(n):\n    return n" if ok else "def f(n) return" for ok in valid]
    assert [reports.is_python(text) for text in texts] == valid
    trajectories = [attempt(i, 0.0, False, text) for i, text in enumerate(texts)]
    with folder() as directory:
        run = written(directory, "s", "seed1")
        episodes = [Episode(problem_id="p", trajectories=trajectories)]
        RunRecord(run.directory).add_episodes(lines(1, episodes, {"generator": "generator"}))
        assert programs_of(run) == texts
        table = reports.syntax(reports.by_setting([run]), programs_of)
    if not any(valid):
        assert table is None, "a game in another language has nothing to report"
        return
    size = max(1, len(valid) // 3)
    assert mean_of(cells(table, "first")["s"]) == statistics.fmean(valid[:size])
    assert mean_of(cells(table, "last")["s"]) == statistics.fmean(valid[-size:])


# R3, property 34: per-task tracking.
@examples
@given(st.lists(attempts, min_size=1, max_size=4), st.lists(by_problem, max_size=6), st.integers(0, 6))
def test_34_every_task_trained_on_and_held_out_has_a_history_of_its_own(steps, evaluations, resumed_at):
    """Also after the run was continued from an earlier step."""
    with folder() as directory:
        run = written(directory, "s", "seed1", tasks=evaluations)
        record = RunRecord(run.directory)
        for step, drawn in enumerate(steps, start=1):
            record.add_episodes(lines(step, played(drawn), {"generator": "generator"}))
        rows = list(task_rows(run))
        record.continue_from(resumed_at, {})
        assert list(task_rows(run)) == [row for row in rows if row["step"] <= resumed_at]

    def history(problem: str, split: str) -> list[tuple[int, float]]:
        return [(r["step"], r["value"]) for r in rows if (r["problem"], r["split"]) == (problem, split)]

    for problem in "pqr":
        solved = [[ok for p, _, ok in drawn if p == problem] for drawn in steps]
        expected = [(step, statistics.fmean(of)) for step, of in enumerate(solved, start=1) if of]
        assert history(problem, "training") == expected
    for problem in "abcdefgh":
        expected = [(step, tasks[problem]) for step, tasks in enumerate(evaluations) if problem in tasks]
        assert history(problem, "held out") == expected


# R3, property 38: learning curve generation.
@examples
@given(st.integers(1, 3), st.lists(st.tuples(eighths, eighths), min_size=1, max_size=5))
def test_38_curves_hold_training_and_validation_over_the_steps(seeds, points):
    held_out, rewards = [0.0, *(a for a, _ in points)], [b for _, b in points]
    with folder() as directory:
        runs = [written(directory, "s", f"seed{i}", held_out=held_out, rewards=rewards) for i in range(seeds)]
        (found,) = reports.curves(reports.by_setting(runs), METRIC).values()
    assert found["validation"] == [(step, interval([value] * seeds)) for step, value in enumerate(held_out)]
    assert found["training"] == [
        (step, interval([value] * seeds)) for step, value in enumerate(rewards, start=1)
    ]


def test_38_both_are_plotted(tmp_path):
    runs = [written(tmp_path, "s", str(low), held_out=[0, low], rewards=[low, 1]) for low in (0.25, 0.75)]
    figure = learning_curves(reports.curves(reports.by_setting(runs), METRIC), METRIC)
    drawn = {axis.get_title(): axis.lines[0].get_xydata().tolist() for axis in figure.axes}
    assert drawn == {f"validation: {METRIC}": [[0, 0], [1, 0.5]], "training: mean reward": [[1, 0.5], [2, 1]]}
