"""Learning progress pays where a world model learns, and nothing for noise, which surprise pays most for."""

from dataclasses import replace

import pytest
import torch

from lookact.algorithms.world_model import encode_wrist_only, follow, sequence_rewards
from lookact.data.sequences import TokenSequences
from lookact.errors import DataError
from lookact.recipes.world_duel.config import PRESETS, EnvConfig, ModelConfig
from lookact.recipes.world_duel.data import open_state
from lookact.recipes.world_duel.preflight import check_phase
from lookact.recipes.world_duel.train import fit_world_model
from lookact.training.optim import build_adamw

ROWS, STEPS, CODES = 16, 6, 16
CONFIG = replace(
    PRESETS["debug"],
    env=EnvConfig(name="memory_curtain", image_size=16, num_envs=2, steps_per_episode=STEPS),
    model=ModelConfig(width=16, layers=1, memory=16, ensemble_size=2),
    tokenizer=replace(PRESETS["debug"].tokenizer, scales=(1, 2)),
    rewards=replace(PRESETS["debug"].rewards, uncertainty="learning_progress", progress_decay=0.9),
)


def two_regions(world_model, seed):
    """Episodes in a region where two pictures take turns (state 0), then in one of pure noise (state 1)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = world_model.spec.vq.tokens
    pictures = torch.randint(CODES, (2, tokens), generator=torch.Generator().manual_seed(7))
    first = torch.randint(2, (ROWS, 1), generator=generator)
    turns = pictures[(first + torch.arange(STEPS + 1)) % 2]
    noise = torch.randint(CODES, (ROWS, STEPS + 1, tokens), generator=generator)
    wrist = torch.cat([turns, noise]).to(torch.int16)
    return TokenSequences(
        wrist=wrist,
        head=torch.zeros_like(wrist),
        head_seen=torch.zeros(2 * ROWS, dtype=torch.bool),
        state=torch.arange(2.0).repeat_interleave(ROWS)[:, None, None].expand(-1, STEPS + 1, 1).clone(),
        actions=torch.rand(2 * ROWS, STEPS, 8, generator=generator),
        text_ids=world_model.tokenize(["remember what is behind the curtain"] * 2 * ROWS),
        mask=torch.ones(2 * ROWS, STEPS, dtype=torch.bool),
    )


@pytest.fixture(scope="module")
def learned():
    """A train state whose world model is in the midst of learning, and held-out episodes of both regions."""
    state = open_state(CONFIG, None)
    state.world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    state.older.load_state_dict(state.world_model.state_dict())
    state = replace(state, world_model_optimizer=build_adamw({"world_model": state.world_model}, lr=3e-3))
    for step in range(25):
        batch = encode_wrist_only(state.world_model, two_regions(state.world_model, step + 1))
        fit_world_model(state, batch, torch.arange(2 * ROWS) % 2, CONFIG, step)
    state.envs.close()
    return state, two_regions(state.world_model, 0)


def paid(learned, kind):
    """Mean reward in the region that can be learned, and in the noise."""
    state, held_out = learned
    positions, how = held_out.state[:, 1:], {"stride": 1, "kind": kind, "older": state.older}
    found = sequence_rewards(state.world_model, held_out, positions, **how).uncertainty
    return float(found[:ROWS].mean()), float(found[ROWS:].mean())


def test_surprise_pays_for_noise_and_learning_progress_for_what_is_learned(learned):
    surprise, progress = paid(learned, "surprise"), paid(learned, "learning_progress")
    assert surprise[1] > 1.5 * surprise[0]
    assert progress[0] > 0.1
    assert abs(progress[1]) < 0.2 * progress[0]


def test_no_progress_is_made_against_oneself(learned):
    state, held_out = learned
    how = {"stride": 1, "kind": "learning_progress", "older": state.world_model}
    found = sequence_rewards(state.world_model, held_out, held_out.state[:, 1:], **how).uncertainty
    assert found.abs().max() == 0


def test_the_older_model_follows_by_its_decay_and_shares_what_is_not_learned():
    state = open_state(CONFIG, None)
    older, model = state.older, state.world_model
    with torch.no_grad():
        older.critic.output.bias.fill_(1.0)
        model.critic.output.bias.fill_(2.0)
        model.vq.encoder[0].weight.fill_(3.0)
    follow(older, model, decay=0.75)
    assert older.critic.output.bias.item() == pytest.approx(1.25)
    assert older.vq.encoder[0].weight.eq(3.0).all()
    state.envs.close()


def test_a_teacher_that_kept_no_older_model_is_refused(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(DataError, match="older is no world-duel learning_progress checkpoint"):
        check_phase(replace(CONFIG, phase="student", teacher_path=str(tmp_path)))
