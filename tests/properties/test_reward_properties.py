from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.core.verdict import Limits, Status, Verdict
from sparring.games.multistage.rewards import (
    RewardRules,
    SuiteFacts,
    behaviour_duplicates,
    discriminator_reward,
    outcome,
    pass_rate,
)

examples = settings(max_examples=200, deadline=None)

outcomes = st.sampled_from([True, False, None])
rules = st.builds(
    RewardRules,
    validity_slots=st.integers(1, 16),
    unparseable_reward=st.floats(-1, 0),
    kill_needs_fast_reference=st.floats(0, 1),
    unsolved_weight=st.floats(0, 1),
    behaviour_duplicates_from=st.integers(2, 6),
    wrong_output_penalty=st.floats(0, 1),
    pass_rate_over=st.sampled_from(["valid", "all"]),
)


@st.composite
def tables(draw, cell=outcomes, min_programs=0):
    """Programs x valid tests."""
    tests = draw(st.integers(0, 8))
    return draw(st.lists(st.lists(cell, min_size=tests, max_size=tests), min_size=min_programs, max_size=6))


def suite(rows, emitted, **counts) -> SuiteFacts:
    """Facts of a suite whose valid tests had these outcomes. solvable: else the gate of guard 3 would matter."""
    known = {"parsed": emitted, "wrong_outputs": 0, "duplicates": 0, "solvable": True} | counts
    return SuiteFacts(emitted=emitted, valid=len(rows[0]) if rows else 0, outcomes=rows, **known)


@st.composite
def facts(draw):
    rows = draw(tables())
    valid, invalid = len(rows[0]) if rows else 0, draw(st.integers(0, 8))
    return suite(
        rows,
        valid + invalid,
        parsed=draw(st.integers(valid, valid + invalid)),
        wrong_outputs=draw(st.integers(0, valid)),
        duplicates=draw(st.integers(0, invalid)),
        solvable=any(o for row in rows for o in row),
    )


@examples
@given(facts(), rules)
def test_every_number_is_in_its_range(known, rule):
    reward, components = discriminator_reward(known, rule)
    assert -1 <= reward <= 1
    assert 0 <= components["validity"] <= 1
    assert 0 <= components["kill_rate"] <= 1
    assert 0 <= components["gate"] <= 1
    assert 0 <= components.get("pass_rate", 0.0) <= 1
    assert reward < 0 or reward <= components["validity"]
    assert reward >= 0 or known.parsed == 0


@examples
@given(tables(cell=st.booleans(), min_programs=1), st.data(), st.sampled_from(["valid", "all"]))
def test_one_more_kill_never_pays_less_at_the_same_validity(rows, data, over):
    passed = [(i, j) for i, row in enumerate(rows) for j, o in enumerate(row) if o]
    if not passed:
        return
    i, j = data.draw(st.sampled_from(passed))
    better = [list(row) for row in rows]
    better[i][j] = False
    rule = RewardRules(pass_rate_over=over)
    emitted = len(rows[0]) + data.draw(st.integers(0, 4))
    less, more = (discriminator_reward(suite(table, emitted), rule)[0] for table in (rows, better))
    assert more > less


@examples
@given(
    tables(cell=st.booleans(), min_programs=1),
    st.integers(0, 8),
    st.integers(1, 4),
    st.floats(0, 1, exclude_max=True),
)
def test_one_more_invalid_test_never_pays(rows, invalid, more, weight):
    """p is over the valid tests: whatever the programs do, padding a suite lowers its worth."""
    rule, valid = RewardRules(validity_weight=weight), len(rows[0])
    padded, plain = (
        discriminator_reward(suite(rows, valid + count), rule)[0] if valid + count else 0.0
        for count in (invalid + more, invalid)
    )
    assert padded <= plain


@examples
@given(st.lists(outcomes), st.integers(0, 5))
def test_the_generators_reward_is_the_share_of_what_counts(results, invalid):
    counted = [o for o in results if o is not None]
    rate = pass_rate(results, invalid)
    if not counted and not invalid:
        assert rate is None
    else:
        assert rate == counted.count(True) / (len(counted) + invalid)


@examples
@given(tables(min_programs=1), rules)
def test_one_test_of_every_behaviour_is_kept(rows, rule):
    by_test = [list(column) for column in zip(*rows, strict=True)]
    repeats = behaviour_duplicates(by_test, rule)
    kept = [tuple(o) for i, o in enumerate(by_test) if i not in repeats]
    assert set(kept) == set(map(tuple, by_test))
    if len(rows) >= rule.behaviour_duplicates_from:
        assert len(kept) == len(set(kept))
    else:
        assert not repeats


@examples
@given(st.sampled_from([s for s in Status if not s.is_infrastructure()]), st.floats(0, 1e5), rules)
def test_only_passing_passes(status, reference_ms, rule):
    result = outcome(Verdict(status=status), reference_ms, Limits(), rule)
    assert (result is True) == (status is Status.PASSED)
    assert (result is None) <= status.is_resource_limit()
