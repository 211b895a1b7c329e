"""A tiny policy with memory and action history, served from a thread of this process."""

import importlib.util

import numpy as np
import pytest

from lookact.models.vla.checkpoint import make_vla
from lookact.models.vla.encoders import TextSpec, VisionSpec
from lookact.models.vla.policy import PolicySpec

SPEC = PolicySpec(("head", "wrist"), state_size=3, action_size=2, history=2, width=16, layers=1, heads=2, memory=4)
VISION, TEXT = VisionSpec(image_size=16, patch=8, hidden=32, layers=1, pool_queries=2), TextSpec(hidden=32, length=12)


def pytest_collection_modifyitems(items):
    absent = [name for name in ("websockets", "msgpack", "fastapi") if importlib.util.find_spec(name) is None]
    for item in items if absent else ():
        if "rollout/policy_server" in str(item.path):
            item.add_marker(pytest.mark.skip(reason="needs lookact[policy]"))


@pytest.fixture(scope="session")
def policy():
    vla = make_vla(SPEC, VISION, TEXT, corpus=["put the red cube on the stand"], seed=0)
    # a fresh head hardly moves: what the policy is shown must show in what it does
    vla.head.weight.data.mul_(4)
    vla.freeze_encoders()
    return vla


@pytest.fixture
def serve_policy(serve_app, policy):
    """Serves the policy; gives its websocket's address."""
    from lookact.judges.client import wait_until_ready
    from lookact.rollout.policy_server.app import LIMITS, create_app
    from lookact.rollout.policy_server.observations import PolicyFacts

    def start(*, limits=LIMITS, greedy=True, acting=policy, **options):
        facts = PolicyFacts("vla-ppo", ("head", "wrist"), 16, 3, 2, greedy, True)
        app = create_app(acting, facts, limits=limits, **options)
        url = serve_app(app, limits, websockets=True)
        wait_until_ready(url, seconds=60.0)
        return url.replace("http", "ws")

    return start


@pytest.fixture
def observations():
    """A stream of observations, the same for a seed."""

    def draw(seed, count, size=16):
        rng = np.random.default_rng(seed)
        return [
            {
                "head": rng.integers(0, 256, (size, size, 3), dtype=np.uint8),
                "wrist": rng.integers(0, 256, (size, size, 3), dtype=np.uint8),
                "state": rng.normal(size=3).astype(np.float32),
                "instruction": "put the red cube on the stand",
            }
            for _ in range(count)
        ]

    return draw


@pytest.fixture
def act_here(policy):
    """What the policy itself does on a stream of observations."""
    import torch

    from lookact.rollout.vector_rollout import ControlActor
    from lookact.types import VectorObservation

    @torch.inference_mode()
    def act(stream):
        actor, actions = ControlActor(policy, 1), []
        for shown in stream:
            arrays = {name: shown[name][None] for name in ("head", "wrist", "state")}
            output = policy.actor(actor.observe(VectorObservation(arrays, {"instruction": (shown["instruction"],)})))
            action = output.mean[:, 0].clamp(-1, 1)
            actor.update(action, output.carry)
            actions.append(action[0].numpy())
        return np.stack(actions)

    return act
