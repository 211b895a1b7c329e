import copy
import math
from dataclasses import replace

import pytest
import torch
from transformers import BertModel, Dinov2Model

from lookact.batch import ControlInputs, SequenceInputs
from lookact.models.actor_critic import draw, score
from lookact.models.vla.checkpoint import make_vla
from lookact.models.vla.encoders import TextSpec, VisionSpec
from lookact.models.vla.policy import VLA, PolicySpec

CORPUS = ["put the red cube on the blue stand", "lift the green brick onto the red stand"]
SMALL = PolicySpec(("head", "wrist"), state_size=3, action_size=2, width=16, layers=1, heads=2)
VISION, TEXT = VisionSpec(image_size=16, patch=8, hidden=32, layers=1, pool_queries=2), TextSpec(hidden=32, length=12)


def policy(seed: int = 0, *, eyes: VisionSpec = VISION, words: TextSpec = TEXT, **changes) -> VLA:
    return make_vla(replace(SMALL, **changes), eyes, words, corpus=CORPUS, seed=seed)


def steps(vla: VLA, rows: int = 4, seed: int = 0) -> ControlInputs:
    stream = torch.Generator().manual_seed(seed)
    return ControlInputs(
        actions=torch.randn(rows, 2, generator=stream),
        state=torch.randn(rows, 3, generator=stream),
        images={
            camera: torch.randint(0, 256, (rows, 16, 16, 3), generator=stream, dtype=torch.uint8)
            for camera in ("head", "wrist")
        },
        text_ids=vla.tokenize([CORPUS[row % 2] for row in range(rows)]),
        history=torch.randn(rows, 5, 2, generator=stream).clamp(-1, 1),
    )


def test_the_encoders_are_the_real_architectures():
    vla = policy()
    assert type(vla.vision_encoder.encoder) is Dinov2Model
    assert type(vla.text_encoder.encoder) is BertModel


@pytest.mark.parametrize("spread", ["fixed", "learned", "decay"])
def test_what_was_sampled_is_scored_alike(spread):
    vla = policy(std_schedule=spread)
    vla.set_progress(0.4)
    inputs = steps(vla)
    actions, logprobs, values = vla.act(inputs, generator=torch.Generator().manual_seed(1))
    vla.train()
    scores = vla.evaluate(replace(inputs, actions=actions))
    assert scores.logprobs.shape == scores.entropy.shape == scores.values.shape == (4, 1)
    torch.testing.assert_close(scores.logprobs[:, 0], logprobs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores.values[:, 0], values, rtol=1e-5, atol=1e-6)


def test_the_log_density_is_the_gaussians():
    vla = policy(std=0.5)
    inputs = steps(vla)
    mean = vla(inputs).mean[:, 0]
    scores = vla.evaluate(replace(inputs, actions=mean + torch.tensor([0.5, -1.0])))
    # one and two deviations away: -(1 + 4)/2, and for each number -log(0.5) - log(2 pi)/2
    expected = -2.5 + 2 * (math.log(2) - 0.5 * math.log(2 * math.pi))
    torch.testing.assert_close(scores.logprobs, torch.full((4, 1), expected))
    torch.testing.assert_close(
        scores.entropy, torch.full((4, 1), 2 * (math.log(0.5) + 0.5 * math.log(2 * math.pi * math.e)))
    )


def test_greedy_is_the_mean_and_noise_follows_its_stream():
    vla = policy()
    inputs = steps(vla)
    mean = vla(inputs).mean[:, 0]
    assert torch.equal(vla.act(inputs, generator=None, greedy=True)[0], mean)
    first, again, other = (vla.act(inputs, generator=torch.Generator().manual_seed(s))[0] for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_rows_do_not_see_each_other():
    vla = policy()
    inputs = steps(vla)
    alone = ControlInputs(
        inputs.actions[1:2],
        inputs.state[1:2],
        {camera: frames[1:2] for camera, frames in inputs.images.items()},
        inputs.text_ids[1:2],
        inputs.history[1:2],
    )
    torch.testing.assert_close(vla(alone).mean, vla(inputs).mean[1:2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("part", ["state", "text_ids", "history", "head", "wrist"])
def test_everything_that_is_shown_matters(part):
    vla = policy()
    inputs = steps(vla)
    other = steps(vla, seed=1)
    if part in inputs.images:
        changed = replace(inputs, images=inputs.images | {part: other.images[part]})
    elif part == "text_ids":
        changed = replace(inputs, text_ids=inputs.text_ids.flip(0))
    else:
        changed = replace(inputs, **{part: getattr(other, part)})
    assert not torch.allclose(vla(inputs).mean, vla(changed).mean, atol=1e-5)
    assert torch.equal(vla(inputs).mean, vla(replace(inputs, actions=other.actions)).mean)


def test_cached_features_stand_for_their_frames():
    vla = policy()
    inputs = steps(vla)
    assert not vla.frozen_vision
    vla.freeze_encoders()
    assert vla.frozen_vision
    cached = vla.features(inputs.images, inputs.text_ids)
    assert {camera: tuple(found.shape) for camera, found in cached.items()} == {"head": (4, 2, 34), "wrist": (4, 2, 34)}
    assert torch.equal(vla.evaluate(replace(inputs, images=cached)).logprobs, vla.evaluate(inputs).logprobs)


def test_while_glances_learn_the_patches_are_what_is_cached():
    vla = policy(eyes=replace(VISION, finetune="frozen"))
    inputs = steps(vla)
    cached = vla.features(inputs.images, inputs.text_ids)
    # a picture of 16 pixels has four patches of 8
    assert tuple(cached["head"].shape) == (4, 4, 32)
    with_cache, with_frames = (vla.evaluate(each).logprobs for each in (replace(inputs, images=cached), inputs))
    assert torch.equal(with_cache, with_frames)
    with_cache.sum().backward()
    assert vla.vision_encoder.pools["head"].queries.grad is not None
    assert all(parameter.grad is None for parameter in vla.vision_encoder.encoder.parameters())


@pytest.mark.parametrize(("hold", "learns"), [("frozen", 0), ("lora", 6), ("full", 99)])
def test_how_an_encoder_is_held(hold, learns):
    vla = policy(eyes=replace(VISION, finetune=hold), words=replace(TEXT, finetune=hold))
    inputs = steps(vla)
    vla.evaluate(inputs).logprobs.sum().backward()
    for encoder in (vla.vision_encoder.encoder, vla.text_encoder.encoder):
        touched = [name for name, parameter in encoder.named_parameters() if parameter.grad is not None]
        assert len(touched) >= min(learns, 6)
        assert all("lora" in name for name in touched) or hold == "full"
    assert vla.head.weight.grad is not None


def test_fresh_adapters_change_nothing_and_follow_the_seed():
    plain, adapted = policy(), policy(eyes=replace(VISION, finetune="lora"))
    inputs = steps(plain)
    torch.testing.assert_close(adapted(inputs).mean, plain(inputs).mean)
    again = policy(eyes=replace(VISION, finetune="lora"))
    assert all(torch.equal(a, b) for a, b in zip(adapted.state_dict().values(), again.state_dict().values()))


def test_critic_and_actor_do_not_pull_at_each_other():
    vla = policy()
    inputs = steps(vla)
    with torch.no_grad():
        vla.critic["head"].output.weight.fill_(1.0)
    vla(inputs).values.sum().backward()
    moved = {name.split(".")[0] for name, parameter in vla.named_parameters() if parameter.grad is not None}
    assert moved == {"critic"}
    vla.zero_grad()
    vla(inputs).mean.sum().backward()
    assert all(parameter.grad is None for parameter in vla.critic.parameters())


def test_a_fresh_critic_says_nothing():
    vla = policy()
    assert torch.equal(vla(steps(vla)).values, torch.zeros(4))


def test_a_decaying_deviation_falls_from_first_to_last():
    vla = policy(std_schedule="decay", std=0.4, final_std=0.1)
    found = []
    for share in (0.0, 0.5, 1.0, 7.0):
        vla.set_progress(share)
        found.append(float(vla.action_log_std().exp()[0]))
    # halfway it is the geometric mean
    assert found == pytest.approx([0.4, 0.2, 0.1, 0.1])
    # and where it stands is saved with the weights
    other = policy(std_schedule="decay", std=0.4, final_std=0.1, seed=1)
    other.load_state_dict(vla.state_dict())
    assert float(other.action_log_std().exp()[0]) == pytest.approx(0.1)


def test_only_a_learned_deviation_learns():
    for spread in ("fixed", "learned", "decay"):
        assert policy(std_schedule=spread).log_std.requires_grad == (spread == "learned")


def test_actions_beyond_the_bounds_are_remembered_as_the_world_cut_them():
    vla = policy()
    inputs = steps(vla)
    beyond = torch.tensor([[3.0, -2.0]]).expand(4, 5, 2)
    cut = torch.tensor([[1.0, -1.0]]).expand(4, 5, 2)
    assert torch.equal(vla(replace(inputs, history=beyond)).mean, vla(replace(inputs, history=cut)).mean)


def test_of_a_chunk_the_first_action_is_drawn_and_scored():
    vla = policy(action_chunk=3)
    inputs = steps(vla)
    output = vla(inputs)
    assert output.mean.shape == (4, 3, 2)
    assert torch.equal(draw(output, generator=None, greedy=True)[0], output.mean[:, 0])
    later = replace(output, mean=output.mean + torch.tensor([0.0, 1.0, 1.0]).view(1, 3, 1))
    assert torch.equal(score(output, inputs.actions).logprobs, score(later, inputs.actions).logprobs)


def test_states_are_seen_in_units_of_their_spread():
    vla = policy()
    inputs = steps(vla)
    before = vla(inputs).mean
    vla.set_statistics(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 0.5]))
    shifted = inputs.state * torch.tensor([2.0, 4.0, 0.5]) + torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(vla(replace(inputs, state=shifted)).mean, before)


def test_memory_begins_as_zeros_and_is_carried_on():
    vla = policy(memory=8)
    inputs = steps(vla)
    start = vla.start_carry(4)
    assert torch.equal(start, torch.zeros(1, 4, 8))
    assert policy().start_carry(4) is None
    first = vla(inputs)
    assert torch.equal(first.mean, vla(replace(inputs, carry=start)).mean)
    assert first.carry.shape == (1, 4, 8)
    assert not torch.allclose(vla(replace(inputs, carry=first.carry)).mean, first.mean)


def test_a_window_is_its_steps_one_by_one_and_memory_ends_with_an_episode():
    vla = policy(memory=8)
    moments = [steps(vla, rows=2, seed=seed) for seed in range(3)]
    starts = torch.tensor([[True, False, False], [True, False, True]])
    joined = ControlInputs(
        actions=torch.stack([each.actions for each in moments], dim=1),
        state=torch.stack([each.state for each in moments], dim=1),
        images={c: torch.stack([each.images[c] for each in moments], dim=1) for c in ("head", "wrist")},
        text_ids=torch.stack([each.text_ids for each in moments], dim=1),
        history=torch.stack([each.history for each in moments], dim=1),
    )
    means, scores = vla.evaluate_windows(SequenceInputs(joined, vla.start_carry(2), starts))
    carry = vla.start_carry(2)
    for step, inputs in enumerate(moments):
        if step == 2:
            carry = torch.stack([carry[0, 0], torch.zeros(8)]).unsqueeze(0)
        output = vla(replace(inputs, carry=carry))
        torch.testing.assert_close(means[:, step], output.mean)
        torch.testing.assert_close(scores.logprobs[:, step], score(output, inputs.actions).logprobs[:, 0])
        carry = output.carry
    # what is done last depends on what was remembered first
    means[0, 2].sum().backward()
    assert vla.memory.weight_hh.grad.abs().sum() > 0


def test_a_copy_reads_for_itself():
    vla = policy()
    vla.freeze_encoders()
    inputs = steps(vla)
    vla(inputs)
    twin = copy.deepcopy(vla)
    twin.load_state_dict(policy(seed=5).state_dict())
    assert not torch.allclose(twin(inputs).mean, vla(inputs).mean)
    assert torch.equal(twin(inputs).mean, _frozen(policy(seed=5))(inputs).mean)


def _frozen(vla: VLA) -> VLA:
    vla.freeze_encoders()
    return vla


@pytest.mark.slow
def test_the_same_seed_gives_the_same_policy():
    first, other = policy(seed=3), policy(seed=4)
    torch.manual_seed(99)
    again = policy(seed=3)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters()))
    assert not torch.equal(first.head.weight, other.head.weight)


FLOW = {"action_head": "flow", "flow_steps": 3}


def moving(**changes) -> VLA:
    """A flow policy whose velocity and noise depend on what it is shown."""
    vla = policy(**FLOW, **changes)
    generator = torch.Generator().manual_seed(7)
    for parameter in vla.head.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return vla


@pytest.mark.parametrize("noise", ["learned", "sde"])
@pytest.mark.parametrize("changes", [{}, {"action_chunk": 3, "memory": 8, "std_schedule": "decay"}])
def test_a_flow_policys_chain_is_scored_as_it_was_sampled(noise, changes):
    vla = moving(flow_noise=noise, **changes)
    vla.set_progress(0.4)
    inputs, chunk = steps(vla), changes.get("action_chunk", 1)
    chain, logprobs, values = vla.act(inputs, generator=torch.Generator().manual_seed(1))
    assert chain.shape == (4, 4 * 2 * chunk) == (4, vla.spec.sample_size)
    scores = vla.evaluate(replace(inputs, actions=chain))
    torch.testing.assert_close(scores.logprobs[:, 0], logprobs, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(scores.values[:, 0], values)
    # the chain ends in a chunk, whose first action is done
    torch.testing.assert_close(vla.executed(chain), chain.view(4, 4, chunk, 2)[:, 3, 0])
    greedy = vla.act(inputs, generator=None, greedy=True)[0]
    assert float(greedy[:, : 2 * chunk].abs().sum()) == 0.0
    assert torch.equal(greedy, vla.sample(inputs, torch.zeros_like(greedy))[0])


def test_a_flow_policys_noise_starts_as_it_is_set_and_learns():
    vla = policy(std=0.3, **FLOW)
    inputs = replace(steps(vla), actions=torch.randn(4, 8))
    log_std = vla.actor(inputs).log_std
    # three steps together have the deviation that is set; the prior has one of 1
    torch.testing.assert_close(log_std[:, :2], torch.zeros(4, 2))
    torch.testing.assert_close(log_std[:, 2:], torch.full((4, 6), math.log(0.3 / math.sqrt(3))))
    vla.evaluate(inputs).logprobs.sum().backward()
    assert float(vla.head.deviation.weight.grad.abs().sum()) > 0
    assert float(vla.head.velocity.weight.grad.abs().sum()) > 0
    assert float(vla.fusion.readout.grad.abs().sum()) > 0
    assert vla.log_std.grad is None
    moved = moving(std=0.3)
    bounds = (moved.actor(inputs).log_std[:, 2:].detach() - math.log(0.3 / math.sqrt(3))).abs()
    assert 0 < float(bounds.min()) <= float(bounds.max()) <= math.log(3.0)


def test_windows_of_a_flow_policy_carry_the_memory_on():
    vla = moving(memory=8)
    each = [steps(vla, seed=seed) for seed in range(3)]
    joined = ControlInputs(
        *(torch.stack([getattr(step, name) for step in each], dim=1) for name in ("actions", "state")),
        {camera: torch.stack([step.images[camera] for step in each], dim=1) for camera in ("head", "wrist")},
        *(torch.stack([getattr(step, name) for step in each], dim=1) for name in ("text_ids", "history")),
    )
    starts = torch.zeros(4, 3, dtype=torch.bool)
    starts[0, 2] = True
    found = vla.hidden_windows(SequenceInputs(joined, vla.start_carry(4), starts))
    carry = vla.start_carry(4)
    for number, step in enumerate(each):
        carry = carry.masked_fill(starts[:, number].view(1, -1, 1), 0.0)
        hidden, _, carry = vla.hidden(replace(step, carry=carry))
        torch.testing.assert_close(found[:, number], hidden, rtol=1e-5, atol=1e-5)


def test_actions_are_done_in_the_units_of_their_bounds():
    vla = policy(action_bounds=((-2.0, 10.0), (2.0, 30.0)))
    drawn = torch.tensor([[-1.0, 0.0], [0.5, 5.0]])
    done = vla.executed(drawn)
    assert done.tolist() == [[-2.0, 20.0], [1.0, 30.0]]
    torch.testing.assert_close(vla.normalise_actions(done), drawn.clamp(-1, 1))
    assert policy().executed(drawn) is drawn


def test_an_asymmetric_critic_knows_the_true_state_and_the_actor_does_not():
    vla = policy(true_state=3)
    torch.nn.init.normal_(vla.critic["head"].output.weight)
    inputs = replace(steps(vla), true_state=torch.zeros(4, 3))
    other = replace(inputs, true_state=torch.ones(4, 3))
    assert torch.equal(vla(inputs).mean, vla(other).mean)
    assert not torch.allclose(vla(inputs).values, vla(other).values)
    # and pictures are nothing to the critic
    dark = {camera: torch.zeros_like(frames) for camera, frames in inputs.images.items()}
    assert torch.equal(vla(inputs).values, vla(replace(inputs, images=dark)).values)
