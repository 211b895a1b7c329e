import weakref

import numpy as np
import pytest
import torch

from lookact.algorithms.behaviour_cloning import bc_loss, rows_at, tabulate
from lookact.data.lerobot.read import Demonstration
from lookact.errors import DataError
from lookact.models.vla.checkpoint import make_vla
from lookact.models.vla.encoders import TextSpec, VisionSpec
from lookact.models.vla.policy import PolicySpec
from lookact.training.optim import build_adamw

VISION, TEXT = VisionSpec(image_size=16, patch=8, hidden=32, layers=1, pool_queries=2), TextSpec(hidden=32, length=8)


def policy(**changes):
    spec = PolicySpec(("head",), state_size=1, action_size=2, **{"width": 16, "layers": 1, "heads": 2, **changes})
    return make_vla(spec, VISION, TEXT, corpus=["go left", "go right"], seed=0)


def demo(task: str, actions: list[list[float]], shade: int = 0) -> Demonstration:
    n = len(actions)
    frames = np.full((n, 16, 16, 3), shade, np.uint8)
    return Demonstration(task, {"head": frames}, np.arange(n, dtype=np.float32)[:, None], np.array(actions, np.float32))


FLOW = {"action_head": "flow", "flow_steps": 4, "width": 32}
DEMOS = [demo("go left", [[1, 0], [2, 0], [3, 0]], 10), demo("go right", [[4, 0], [5, 0]], 200)]


def test_rows_follow_the_demonstrations():
    table = tabulate(policy(history=2), DEMOS, encode=False)
    assert len(table) == 5
    assert table.episodes == 2
    assert table.episode.tolist() == [0, 0, 0, 1, 1]
    assert table.inputs.actions[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert table.inputs.state[:, 0].tolist() == [0, 1, 2, 0, 1]
    # the last two actions, oldest first, zeros before the first, and none of the demonstration before
    assert table.inputs.history[:, :, 0].tolist() == [[0, 0], [0, 1], [1, 2], [0, 0], [0, 4]]
    assert table.inputs.images["head"][:, 0, 0, 0].tolist() == [10, 10, 10, 200, 200]
    assert torch.equal(table.inputs.text_ids[0], table.inputs.text_ids[2])
    assert not torch.equal(table.inputs.text_ids[0], table.inputs.text_ids[3])


def test_a_chunk_ends_with_its_demonstration():
    table = tabulate(policy(), DEMOS, encode=False)
    actions, mask = table.ahead(torch.tensor([1, 4]), 3)
    assert mask.tolist() == [[True, True, False], [True, False, False]]
    assert actions[0, :2, 0].tolist() == [2, 3]
    assert actions[1, 0, 0] == 5


def test_frozen_eyes_see_each_frame_once():
    vla = policy()
    vla.freeze_encoders()
    table = tabulate(vla, DEMOS, encode=True)
    assert table.inputs.images["head"].shape == (5, 2, 34)
    plain = tabulate(vla, DEMOS, encode=False)
    losses = [bc_loss(vla, each, noise=0.0, shuffle_prob=0.0, seed=0)([0, 3], 1)[0] for each in (table, plain)]
    torch.testing.assert_close(*losses)


def test_the_loss_is_the_squared_error_of_the_means():
    vla = policy()
    with torch.no_grad():
        vla.head.weight.zero_()
        vla.head.bias.copy_(torch.tensor([2.0, 1.0]))
    table = tabulate(vla, DEMOS, encode=False)
    loss, metrics = bc_loss(vla, table, noise=0.3, shuffle_prob=0.5, seed=0)([0, 2, 4], 1)
    # away from 2 by 1, 1 and 3, and from 1 by 1 each
    assert float(loss.detach()) == pytest.approx((1 + 1 + 9 + 3) / 6)
    assert float(metrics["mse"]) == pytest.approx(14 / 6)


def test_what_is_shaken_or_swapped_follows_the_step():
    seen = []
    vla = policy(history=1)
    table = tabulate(vla, DEMOS, encode=False)
    vla.entries["action"].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].clone()))
    rows = [0, 1, 2, 3, 4] * 20
    for swap, step in ((0.0, 1), (0.0, 1), (1.0, 1), (1.0, 2)):
        bc_loss(vla, table, noise=0.0, shuffle_prob=swap, seed=0)(rows, step)
    own, again, swapped, later = seen
    assert torch.equal(own, table.inputs.history[rows].clamp(-1, 1))
    assert torch.equal(own, again)
    # another's past is a past of some row: as many of each kind as before, but elsewhere
    assert not torch.equal(swapped, own)
    assert torch.equal(swapped.flatten().sort().values, own.flatten().sort().values)
    assert not torch.equal(swapped, later)


def test_an_empty_past_is_not_shaken():
    seen = []
    vla = policy(history=2)
    table = tabulate(vla, DEMOS, encode=False)
    vla.entries["action"].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].clone()))
    bc_loss(vla, table, noise=0.5, shuffle_prob=0.0, seed=0)([0, 1, 3], 1)
    assert not seen[0][[0, 2]].any()
    assert not seen[0][1, 0].any()
    assert seen[0][1, 1].any()


def test_with_memory_whole_demonstrations_are_imitated():
    vla = policy(memory=4)
    with torch.no_grad():
        vla.head.weight.zero_()
        vla.head.bias.copy_(torch.tensor([2.0, 0.0]))
    table = tabulate(vla, DEMOS, encode=False)
    loss, _ = bc_loss(vla, table, noise=0.0, shuffle_prob=0.0, seed=0)([1, 0], 1)
    # padding after the shorter one counts for nothing: away from 2 by 1, 0, 1, 2, 3
    assert float(loss.detach()) == pytest.approx((1 + 0 + 1 + 4 + 9) / 10)


@pytest.mark.parametrize("changes", [{}, {"memory": 4}])
def test_a_flow_policy_is_cloned_by_the_error_of_its_velocity(changes):
    vla = policy(action_head="flow", action_chunk=3, **changes)
    with torch.no_grad():
        vla.head.velocity.weight.zero_()
        vla.head.velocity.bias.copy_(torch.tensor([2.0, 1.0] * 3))
    table = tabulate(vla, DEMOS, encode=False)
    rows = [0, 1] if vla.spec.memory else [0, 1, 2, 3, 4]
    found = [bc_loss(vla, table, noise=0.0, shuffle_prob=0.0, seed=0)(rows, step)[0] for step in range(80)]
    # E|noise − a − (2, 1)|²: the noise has a variance of 1; of chunks 1 2 3, 2 3, 3, 4 5 and 5 what follows counts too
    exact = 1 + sum((a + 2) ** 2 + 1 for a in (1, 2, 3, 2, 3, 3, 4, 5, 5)) / 18
    assert float(torch.stack(found).detach().mean()) == pytest.approx(exact, rel=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"memory": 8}, {"action_chunk": 2}, FLOW, {**FLOW, "memory": 8}])
def test_a_policy_learns_what_is_shown(changes):
    vla = policy(**changes)
    table = tabulate(vla, [demo("go left", [[-1, 0]] * 3, 10), demo("go right", [[1, 0]] * 3, 200)], encode=False)
    loss_fn = bc_loss(vla, table, noise=0.0, shuffle_prob=0.0, seed=0)
    optimizer = build_adamw({"policy": vla}, lr=3e-3)
    for step in range(150 if vla.spec.action_head == "flow" else 40):
        loss, _ = loss_fn([0, 1] if vla.spec.memory else list(range(6)), step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    noise = torch.zeros(2, vla.spec.sample_size)
    done = vla.executed(vla.sample(rows_at(table.inputs, torch.tensor([0, 3])), noise)[0])[:, 0]
    assert float(done[0].detach()) < -0.7
    assert float(done[1].detach()) > 0.7


def test_nothing_to_imitate_is_said():
    with pytest.raises(DataError, match="empty"):
        tabulate(policy(), [], encode=False)


def test_frames_of_one_demonstration_are_held_at_a_time(tmp_path):
    alive = []

    def stream():
        for number in range(6):
            made = demo("go left", [[1, 0]] * 4, number)
            alive.append(weakref.ref(made.images["head"]))
            # whatever was given before is gone, but for the one that the reader has in hand
            assert sum(ref() is not None for ref in alive) <= 2
            yield made
            del made

    table = tabulate(policy(), stream(), encode=False, folder=tmp_path)
    frames = table.inputs.images["head"]
    assert frames[:, 0, 0, 0].tolist() == [number for number in range(6) for _ in range(4)]
    assert list(tmp_path.iterdir()) == []
