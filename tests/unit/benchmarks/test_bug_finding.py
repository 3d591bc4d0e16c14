import argparse
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.experiments.bug_finding import (
    SUITES,
    Target,
    compare,
    drawn_suites,
    make_targets,
    measure,
    random_input,
)
from configs.load import load_run
from lab.problems import toy_problems, toy_specs
from sandbox_workers.local import LocalSandbox
from sandbox_workers.nothing import NoSandbox
from sparring.evaluation.mutants import OPERATORS, Mutant
from sparring.games.multistage.game import MultistageGame
from sparring.games.suite_scores import SuiteRecord

CONFIG = load_run(["--config", "debug"])[0].to_config()


def options(**changed) -> argparse.Namespace:
    plain = {"problems": 2, "mutants": 4, "operators": OPERATORS, "seeds": [1], "checkpoint": []}
    return argparse.Namespace(**{**plain, "random_tests": 12, "sandbox": "process", **changed})


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox("process") as local:
        yield local


def test_bugs_are_seeded_and_of_the_operators_asked_for(sandbox):
    first, again = (
        asyncio.run(make_targets(options(operators=["comparison"]), sandbox, CONFIG)) for _ in range(2)
    )
    assert first == again and first
    assert all(bug.operator == "comparison" for target in first for bug in target.bugs)


def test_more_random_inputs_find_more(sandbox):
    targets = asyncio.run(make_targets(options(mutants=8), sandbox, CONFIG))
    measures = []
    for tests in (1, 12):
        suites, again, other = (drawn_suites(targets, random_input, tests, seed=s) for s in (1, 1, 2))
        assert suites == again != other
        assert all(len(of_problem) == SUITES for of_problem in suites)
        rules = CONFIG.game.model_copy(update={"max_tests": tests})
        measures.append(asyncio.run(measure(targets, suites, sandbox, rules)))
    few, many = measures
    assert 0 < few["kill_at_1"] <= few["kill_at_5"] <= many["kill_at_5"] <= 1
    assert few["kill_at_1"] < many["kill_at_1"] and (few["tests"], many["tests"]) == (1, 12)
    assert few["validity"] == many["validity"] + many["duplicates"] == 1


def test_what_the_sandbox_could_not_judge_is_in_no_share(monkeypatch: pytest.MonkeyPatch):
    """Two problems of three bugs each: of the first no suite was judged, of the second not its last bug."""
    bugs = [Mutant(source="", operator=of, line=1) for of in ("comparison", "constant", "boolean")]
    target = Target(problem=toy_problems("held_out")[0], spec=toy_specs("held_out")[0], bugs=bugs)
    counts = dict.fromkeys(("emitted", "parsed", "well_formed", "agreed", "distinct"), 3)
    record = SuiteRecord(**counts, repeated=0, validity=1.0, mutants=(True, False, None))
    judged = iter([[None] * SUITES, [record] * SUITES])

    async def judge_suites(*_, **__):
        return next(judged)

    monkeypatch.setattr(MultistageGame, "judge_suites", judge_suites)
    found = asyncio.run(measure([target] * 2, [[""] * SUITES] * 2, NoSandbox(), CONFIG.game))
    shares = {name: share for name, share in found.items() if name.startswith("found")}
    assert shares == {"found, comparison": 1.0, "found, constant": 0.0}
    assert found["kill_at_5"] == 0.5


@pytest.fixture(scope="module")
def raw_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A toy model that has learnt nothing, as a checkpoint directory; torch with one thread, which is enough."""
    import torch

    from lab.model import build_model, build_tokenizer
    from sparring.games.prompts import END, MARKER_TOKENS, PAD

    corpus = [text for p in toy_problems("train")[:200] for text in (p.description, *p.baseline_asserts)]
    tokenizer = build_tokenizer(iter(corpus), MARKER_TOKENS, PAD, END)
    directory, threads = tmp_path_factory.mktemp("model"), torch.get_num_threads()
    torch.set_num_threads(1)
    build_model(tokenizer, seed=1).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    yield directory
    torch.set_num_threads(threads)


def test_checkpoints_are_compared(raw_model: Path, capsys: pytest.CaptureFixture):
    figures = asyncio.run(compare(options(problems=1, checkpoint=[raw_model]), CONFIG, raw_model))
    trained, untrained = (figures[f"{arm}, kill_at_5"]["by_seed"] for arm in ("trained", "untrained"))
    assert trained == untrained  # the same model and sampling seed
    assert figures["problems"] == 1 and figures["bugs"] > 0
    assert figures["random, 12 tests, kill_at_5"]["mean"] > trained[0]
    assert "held-out problems" in capsys.readouterr().out
