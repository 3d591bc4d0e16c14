"""The learner on a GPU, where there is one."""

import pytest
import torch

from learners.learner import Learner
from learners.settings import LearnerSettings
from tests.learning import batch, largest_difference, random_samples, weights

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]


@pytest.mark.parametrize(
    "keys", [{}, {"offload_optimizer": True}, {"lora": {"rank": 4}}, {"gradient_checkpointing": True}]
)
def test_a_gpu_makes_the_update_of_a_cpu(model_path, keys):
    settings = LearnerSettings(**{"estimator": {"kind": "grpo"}, "schedule": {"warmup_updates": 0}} | keys)
    learners = [Learner(settings, 1e-3, model_path, model_path, device=d, seed=3) for d in ("cpu", "cuda")]
    for step in (1, 2):
        for learner in learners:
            learner.step(batch(*random_samples(step, 12), step=step))
    ours, theirs = ({n: t.cpu() for n, t in weights(learner).items()} for learner in learners)
    assert largest_difference(ours, theirs) < 1e-4
    if settings.offload_optimizer:
        states = learners[1].optimizer.state.values()
        assert all(v.device.type == "cpu" for state in states for v in state.values() if v.dim())
