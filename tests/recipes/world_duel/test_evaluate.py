from dataclasses import replace

import pytest
import torch

from lookact.algorithms.exploration import SCRIPTS
from lookact.algorithms.world_model import encode_sequences, generate_sequences, run_memory, tokenise
from lookact.algorithms.world_model_evaluation import baseline_numbers, image_error, object_numbers, open_loop_tokens
from lookact.data.sequences import TokenSequences
from lookact.recipes.world_duel.config import PRESETS, EnvConfig
from lookact.recipes.world_duel.data import (
    Data,
    FrozenExplorer,
    begin_phase,
    duel_errors,
    explore,
    open_state,
    record_expert,
    record_scripted,
)
from lookact.recipes.world_duel.evaluate import duel_report, measure_explorer
from lookact.recipes.world_duel.f1.models import open_model
from lookact.recipes.world_duel.train import adversarial_step

CONFIG = replace(PRESETS["debug"], env=EnvConfig(name="memory_curtain", num_envs=2, steps_per_episode=8))
TABLE = replace(
    PRESETS["debug"],
    env=EnvConfig(num_envs=2, steps_per_episode=8, distractors=1),
    model=replace(PRESETS["debug"].model, ensemble_size=1),
)
ROWS = 3


@pytest.fixture(scope="module")
def world_model():
    model = open_model(CONFIG)
    model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    return model


def sequences(world_model, steps):
    generator = torch.Generator().manual_seed(1)
    tokens, codes = world_model.vq.spec.tokens, world_model.vq.spec.codes
    return TokenSequences(
        wrist=torch.randint(codes, (ROWS, steps + 1, tokens), generator=generator).to(torch.int16),
        head=torch.zeros(ROWS, steps + 1, tokens, dtype=torch.int16),
        head_seen=torch.zeros(ROWS, dtype=torch.bool),
        state=torch.rand(ROWS, steps + 1, 1, generator=generator),
        actions=2 * torch.rand(ROWS, steps, 8, generator=generator) - 1,
        text_ids=world_model.tokenize(["remember"] * ROWS),
        mask=torch.ones(ROWS, steps, dtype=torch.bool),
    )


def test_a_frame_that_comes_as_predicted_has_no_error(world_model):
    made = sequences(world_model, 1)
    assert (image_error(world_model, made, stride=1) > 0).all()
    encoded = encode_sequences(world_model, made)
    made.wrist[:, 1:] = generate_sequences(world_model, encoded, run_memory(world_model, encoded)[:, :-1], stride=1).to(
        torch.int16
    )
    assert image_error(world_model, made, stride=1).tolist() == [0.0] * ROWS


def test_open_loop_prediction_is_shown_nothing_of_the_future(world_model):
    made, begin = sequences(world_model, 6), 2
    made = replace(made, head_seen=torch.ones(ROWS, dtype=torch.bool))
    scrambled = replace(made, wrist=made.wrist.clone(), head=made.head.clone(), state=made.state.clone())
    generator = torch.Generator().manual_seed(2)
    for part in (scrambled.wrist, scrambled.head):
        part[:, begin + 1 :] = torch.randint(world_model.vq.spec.codes, part[:, begin + 1 :].shape, generator=generator)
    scrambled.state[:, begin + 1 :] = torch.rand(scrambled.state[:, begin + 1 :].shape, generator=generator)
    how = {"horizon": 3, "stride": 1, "use_memory": True}
    one, other = (
        open_loop_tokens(world_model, encode_sequences(world_model, x), begin, **how) for x in (made, scrambled)
    )
    assert one.equal(other)
    # the present does matter
    scrambled.wrist[:, : begin + 1] = scrambled.wrist[:, begin + 1 : begin + 2]
    assert not open_loop_tokens(world_model, encode_sequences(world_model, scrambled), begin, **how).equal(one)


def test_copying_and_the_commonest_token_by_hand(world_model):
    made = sequences(world_model, 2)
    made.wrist[:] = 3
    made.wrist[0, 1:] = 5
    frames = torch.zeros(ROWS, 3, 32, 32, 3, dtype=torch.uint8)
    found = baseline_numbers(world_model, encode_sequences(world_model, made), frames)
    # the first row changes once in two steps; four of six frames to come hold threes
    assert found["copy_accuracy"].tolist() == [0.5, 1.0, 1.0]
    assert found["majority_accuracy"].tolist() == [0.0, 1.0, 1.0]


def test_objects_and_what_is_elsewhere_are_told_apart_and_add_up(world_model):
    made = sequences(world_model, 2)
    encoded = encode_sequences(world_model, made)
    frames = torch.stack([world_model.vq.decode(row) for row in encoded.ids])
    # an object in the left half of all frames of the first two episodes, none in the third
    objects = torch.zeros(frames.shape[:-1], dtype=torch.bool)
    objects[:2, :, :, : frames.shape[3] // 2] = True
    found = object_numbers(world_model, encoded, frames, objects, stride=1)
    assert {len(values) for values in found.values()} == {2}
    assert found["share"].tolist() == [0.5, 0.5]
    # the true tokens decode to these very frames
    assert (found["reconstruction_psnr"] > 90).all()
    assert (found["elsewhere_reconstruction_psnr"] > 90).all()
    fine = world_model.vq.spec.scales[-1] ** 2
    memory = run_memory(world_model, encoded)
    for name, ids in (("", generate_sequences(world_model, encoded, memory, stride=1)), ("copy_", encoded.ids[:, :-1])):
        right = (ids == encoded.ids[:, 1:])[:2, :, -fine:].double().flatten(1).mean(dim=1).numpy()
        halves = found[f"{name}token_accuracy"] + found[f"elsewhere_{name}token_accuracy"]
        assert halves / 2 == pytest.approx(right)
    squared = (frames[:2, :-1].double() - frames[:2, 1:].double()).square() / 127.5**2
    left = squared[..., : frames.shape[3] // 2, :].flatten(1).mean(dim=1)
    assert found["copy_psnr"] == pytest.approx((10 * torch.log10(4 / left)).numpy())


def test_the_frozen_explorers_episodes_stay_while_the_world_model_learns():
    state = open_state(CONFIG, None)
    state.world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    state.explorer.model.load_state_dict(state.world_model.state_dict())
    found, random = (explore(state.explorer, state.envs, CONFIG, split, 0)[1] for split in ("explore", "other"))
    data = Data(None, None, random, ())
    state.frozen_explorer.episodes.add(found)
    state.frozen_explorer.initial_errors = duel_errors(state, data, stride=1)
    first = duel_report(state, data, stride=1)
    assert first["frozen_explorer_error"] == first["frozen_explorer_error_before"] > 0
    assert first["random_error"] == first["random_error_before"] > 0
    with torch.no_grad():
        state.world_model.codebook_head.heads.biases[0].add_(0.1)
    again = FrozenExplorer()
    again.load_state_dict(state.frozen_explorer.state_dict())
    later = duel_report(replace(state, frozen_explorer=again), data, stride=1)
    assert later["frozen_explorer_error_before"] == first["frozen_explorer_error_before"]
    assert later["frozen_explorer_error"] != first["frozen_explorer_error"]
    for name in ("frozen_explorer", "random"):
        change = later[f"{name}_error"] - later[f"{name}_error_before"]
        assert later[f"{name}_error_change"] == pytest.approx(change)
        low, high = later["ci"][f"{name}_error_change"]
        assert low <= change <= high


@pytest.mark.slow
def test_scripts_act_in_the_scenes_of_the_explorer_and_the_best_of_each_is_its_rival():
    state = open_state(TABLE, None)
    state.world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    found = measure_explorer(state.explorer, state.world_model, state.envs, TABLE)
    again = measure_explorer(state.explorer, state.world_model, state.envs, TABLE, ("random",))
    state.envs.close()
    assert again["student_error"] == found["student_error"]
    assert again["random_error"] == found["random_error"]
    for measure in ("error", "cells", "joint_bins", "displacement"):
        best = max(found[f"{name}_{measure}"] for name in (*SCRIPTS, "matched"))
        assert found[f"best_{measure}_ratio"] == pytest.approx(found[f"student_{measure}"] / max(1e-9, best))
    assert found["bang_bang_8_action_rms"] == 1.0


@pytest.mark.slow
def test_an_experts_episodes_pick_things_up():
    recording = record_expert(replace(TABLE.env, steps_per_episode=40, num_envs=2), seed=0)
    assert recording.wrist.shape == (2, 41, 32, 32, 3)
    assert recording.actions.shape == (2, 40, TABLE.env.shapes.action_size)
    assert recording.head[:, 0].std() > 0
    assert (recording.state[:, :, 8:11].max(axis=1) - recording.state[:, :, 8:11].min(axis=1)).max() > 0.05


@pytest.mark.parametrize("policy", ["random", "scripted"])
def test_a_control_of_the_duel_trains_the_world_model_on_scripts_and_leaves_the_explorer(policy):
    cfg = replace(TABLE, adversarial=replace(TABLE.adversarial, behaviour_policy=policy))
    state = open_state(cfg, None)
    state.world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    random = tokenise(state.world_model, [record_expert(cfg.env, seed=1)])
    scripted = tokenise(state.world_model, [record_scripted(cfg.env, seed=0)])
    assert scripted.actions.abs().min() == 1.0
    data = Data(random, random, random, (), random, scripted)
    begin_phase(state, data, replace(cfg, phase="adversarial"), "adversarial")
    before = {name: p.clone() for name, p in state.explorer.model.named_parameters()}
    old = [p.clone() for p in state.world_model.parameters()]
    metrics = adversarial_step(state, data, cfg, 1)
    state.envs.close()
    assert all(p.equal(before[name]) for name, p in state.explorer.model.named_parameters())
    assert not all(p.equal(was) for p, was in zip(state.world_model.parameters(), old))
    assert {
        "duel/frozen_explorer_error",
        "duel/random_error",
        "duel/scripted_error",
        "duel/expert_error",
    } <= metrics.keys()
    rms = state.replay.all().actions.square().mean().sqrt()
    assert rms == 1.0 if policy == "scripted" else 0.5 < rms < 0.65
