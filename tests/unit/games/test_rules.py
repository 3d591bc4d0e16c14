"""What rules say of themselves where they say nothing more."""

from sparring.core.verdict import Limits
from sparring.games.boards.rules import KuhnRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.rules import Need


class Runs(KuhnRules):
    """Programs run, and no field speaks of limits."""

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset(("sandbox",))


def test_whose_programs_run_has_limits_whether_or_not_it_has_a_field_for_them():
    assert Runs().limits == Limits()
    tight = Limits(cpu_s=0.5)
    assert CodeGolfRules(sandbox_limits=tight).limits == tight
    assert KuhnRules().limits is None
