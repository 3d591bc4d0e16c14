import numpy as np
import pytest

from sparring.core.arrays import IDS, hold, opened, sealed
from sparring.core.batch import CompletionSpan, Transcript


def test_what_is_sealed_comes_out_as_it_went_in_and_is_bytes_to_everybody_else():
    value = [Transcript(tokens=(1, 2), logprobs=(0.0, -0.5), turns=(CompletionSpan(0, 1, 2, False),))] * 2
    seal = sealed(value)
    assert seal.dtype == np.uint8 and seal.ndim == 1
    assert opened(seal) == value
    read_only = seal.copy()
    read_only.flags.writeable = False  # as Ray's store gives it
    assert opened(read_only) == value


def test_what_is_no_such_number_is_refused():
    class Owner:
        ids = (1, 2)

    owner = Owner()
    hold(owner, ids=IDS)
    assert list(owner.ids) == [1, 2]
    for ids, error in (((1 << 40,), OverflowError), ((0.5,), TypeError)):
        owner.ids = ids
        with pytest.raises(error):
            hold(owner, ids=IDS)
