import math
import zlib
from dataclasses import replace

import numpy as np
import pytest

from sparring.core.weights import PublishError, PublishReceipt, WeightUpdate, check_receipt, digest_of, joined

TENSORS = {"b": np.arange(3, dtype=np.float32), "a": np.ones((2, 2), dtype=np.int16)}


def test_the_digest_is_over_names_and_bytes_in_any_order_and_in_parts():
    expected = sum(zlib.crc32(name.encode() + tensor.tobytes()) for name, tensor in TENSORS.items())
    assert digest_of(TENSORS) == digest_of(dict(sorted(TENSORS.items()))) == expected
    assert sum(digest_of({name: tensor}) for name, tensor in TENSORS.items()) == expected


def test_the_digest_does_not_depend_on_the_layout_in_memory():
    square = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert digest_of({"a": square.T}) == digest_of({"a": np.ascontiguousarray(square.T)})


def test_one_bit_changes_the_digest():
    changed = TENSORS["b"].copy()
    changed[0] = np.nextafter(changed[0], 1)
    assert digest_of({**TENSORS, "b": changed}) != digest_of(TENSORS)
    assert digest_of({"c": TENSORS["b"], "a": TENSORS["a"]}) != digest_of(TENSORS)


UPDATE = WeightUpdate(
    version=3, tensors=TENSORS, digest=digest_of(TENSORS), probe=(1, 2), probe_logprobs=(-0.5,)
)


def receipt(**changes) -> PublishReceipt:
    return PublishReceipt(**({"version": 3, "digest": UPDATE.digest, "probe_difference": 1e-6} | changes))


def test_an_update_in_parts_is_joined():
    parts = [{"b": TENSORS["b"]}, {"a": TENSORS["a"]}]
    whole = joined(replace(UPDATE, tensors={}, parts=("one", "two")), parts)
    assert digest_of(whole.tensors) == UPDATE.digest and not whole.parts
    assert joined(UPDATE, ()) == UPDATE


def test_a_good_receipt_passes():
    check_receipt(UPDATE, receipt(), 1e-3)
    check_receipt(UPDATE, receipt(probe_difference=1e-3), 1e-3)


@pytest.mark.parametrize("changes", [{"version": 2}, {"digest": 0}])
def test_another_version_or_digest_is_refused(changes):
    with pytest.raises(PublishError, match="published version 3"):
        check_receipt(UPDATE, receipt(**changes), 1e-3)


@pytest.mark.parametrize("difference", [1.1e-3, 5.0, math.inf, math.nan])
def test_a_probe_that_differs_is_refused(difference):
    with pytest.raises(PublishError, match="does not run on the published weights"):
        check_receipt(UPDATE, receipt(probe_difference=difference), 1e-3)
