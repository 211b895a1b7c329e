"""`lookact serve-policy`: which checkpoints it takes, and what it says to others."""

import dataclasses
import json

import numpy as np
import pytest

from lookact.cli import main


@pytest.fixture
def vla_checkpoint(tmp_path, policy):
    from lookact.models.vla.checkpoint import save_encoders
    from lookact.training.weights import write_weights

    folder = tmp_path / "run" / "best"
    folder.mkdir(parents=True)
    write_weights(policy, folder)
    save_encoders(policy, folder)
    return folder


@pytest.fixture
def explorer_checkpoint(tmp_path):
    from lookact.config import to_yaml
    from lookact.models.world_model.loading import save_tokenizer
    from lookact.recipes.world_duel.config import PRESETS
    from lookact.recipes.world_duel.f1.models import open_model
    from lookact.training.weights import write_weights

    cfg, folder = PRESETS["debug"], tmp_path / "duel"
    (folder / "student").mkdir(parents=True)
    model = open_model(cfg, None)
    write_weights(model, folder)
    write_weights(model, folder / "student")
    save_tokenizer(model, folder)
    (folder / "config.yaml").write_text(to_yaml(cfg))
    (folder / "run.json").write_text(json.dumps({"recipe": "world-duel"}))
    return folder


def test_a_run_stands_for_its_best_checkpoint(vla_checkpoint, observations, act_here):
    from lookact.cli.serve_policy import load_policy
    from lookact.rollout.policy_server.app import LIMITS
    from lookact.rollout.policy_server.batching import PolicyEngine, Request
    from lookact.rollout.policy_server.observations import read_observation

    policy, facts = load_policy(vla_checkpoint.parent, device="cpu", greedy=True)
    assert (facts.recipe, facts.cameras, facts.image_size, facts.memory) == ("vla-ppo", ("head", "wrist"), 16, True)
    engine, stream = PolicyEngine(policy, LIMITS, greedy=True, seed=0), observations(0, 2)
    session = engine.open()
    found = [engine.step([Request(session, read_observation(shown, facts, {}), None)])[0] for shown in stream]
    np.testing.assert_allclose(found, act_here(stream), atol=1e-5)


def test_an_explorer_of_world_duel_is_served_too(explorer_checkpoint, serve_app):
    from lookact.cli.serve_policy import load_policy
    from lookact.judges.client import wait_until_ready
    from lookact.rollout.policy_server.app import LIMITS, create_app
    from lookact.rollout.policy_server.client import PolicyClient

    explorer, facts = load_policy(explorer_checkpoint, device="cpu", greedy=True)
    assert facts.cameras == ("wrist",)
    url = serve_app(create_app(explorer, facts), dataclasses.replace(LIMITS), websockets=True)
    wait_until_ready(url, seconds=60.0)
    client, rng = PolicyClient(url.replace("http", "ws")), np.random.default_rng(0)
    shape = (facts.image_size, facts.image_size, 3)
    shown = {"wrist": rng.integers(0, 256, shape, dtype=np.uint8), "state": rng.normal(size=facts.state_size)}
    first, second = client.act(shown), client.act(shown)
    assert first.shape == (facts.action_size,)
    # it remembers
    assert np.abs(first - second).max() > 0
    client.reset()
    np.testing.assert_allclose(client.act(shown), first, atol=1e-6)
    client.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "checkpoint nowhere does not exist"),
        (["{folder}"], "holds no control policy: give a checkpoint of vla-ppo or world-duel"),
        (["{folder}", "--rename", "head"], "--rename head: give a client's name and the policy's"),
        (["{folder}", "--port", "x"], "port x is not a number"),
        ([], "required: CHECKPOINT"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path, capsys, words, told):
    assert main(["serve-policy", *(word.format(folder=tmp_path) for word in words)]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
