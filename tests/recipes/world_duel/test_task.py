"""Phase task: the policy clones an expert while the world model predicts it, then PPO by the task's reward."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lookact.algorithms.world_model import sample_batch
from lookact.algorithms.world_model_evaluation import task_numbers
from lookact.data.sequences import TokenSequences
from lookact.envs.testbeds.memory_curtain import MemoryCurtain
from lookact.envs.vector.vector_env import InlineVectorEnv
from lookact.errors import ConfigError
from lookact.models.world_model.explorer import Explorer
from lookact.recipes.world_duel import train as world_duel
from lookact.recipes.world_duel.config import PRESETS, EnvConfig, ModelConfig, phase_at, planned
from lookact.recipes.world_duel.data import open_state
from lookact.recipes.world_duel.f1.environments import env_maker
from lookact.recipes.world_duel.f1.models import cameras_of, open_model
from lookact.recipes.world_duel.train import evaluate, main

DEBUG = PRESETS["debug"]
SHORT = replace(
    DEBUG,
    phase="task",
    env=EnvConfig(name="memory_curtain", image_size=16, num_envs=16, steps_per_episode=6),
    model=ModelConfig(width=16, layers=1, memory=16, ensemble_size=1, foresight=True),
    tokenizer=replace(DEBUG.tokenizer, scales=(1, 2)),
)


def test_phase_task_is_cloning_then_ppo_and_no_part_of_all():
    assert planned(SHORT) == {"clone": 2, "reinforce": 1}
    assert [phase_at(SHORT, step) for step in (1, 2, 3)] == [("clone", 1), ("clone", 2), ("reinforce", 1)]
    assert set(planned(replace(SHORT, phase="all"))) == {"teacher", "student", "adversarial"}
    assert (SHORT.fitting, replace(SHORT, phase="all").fitting) == (SHORT.task_phase.bc, SHORT.teacher)
    assert (cameras_of(SHORT), cameras_of(DEBUG)) == (("wrist", "head"), ("wrist",))


def test_an_environment_without_an_expert_is_refused(train):
    with pytest.raises(ConfigError, match="has an expert in tabletop, two_arms, memory_curtain, not in noisy_tv"):
        train(main, replace(SHORT, env=replace(SHORT.env, name="noisy_tv")))


def test_a_tasks_environment_ends_with_success_and_an_explorers_does_not():
    table = EnvConfig(num_envs=1, steps_per_episode=9)
    for task, wanted in (("push", ("push", True, 9)), (None, ("reach", False, 11))):
        env = env_maker(table, task)()
        assert (env.task, env.terminate_on_success, env.max_steps) == wanted
        env.close()


class Pointing(Explorer):
    """Knows the answer in every other row."""

    def sample(self, inputs, noise):
        drawn, output = super().sample(inputs, noise)
        corners = np.stack([env._corner() * (-1) ** row for row, env in enumerate(self.envs)])
        return torch.cat([torch.from_numpy(corners), drawn[:, 2:]], dim=1), output


def test_success_is_that_of_each_rows_first_episode():
    policy = Pointing(open_model(SHORT), cameras=("wrist", "head"))
    envs = InlineVectorEnv(lambda: MemoryCurtain(image_size=16, point=True, max_steps=8), 4)
    policy.envs = envs.envs
    found = task_numbers(policy, envs, steps=7, episodes=6, seed=0)
    # rows 0 and 2 of four, then 0 of two more; the seventh step is another episode's first
    assert found["success_rate"].tolist() == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    assert found["length"].tolist() == [6.0] * 6


@pytest.mark.slow
@pytest.mark.parametrize(("head", "frames"), [("gaussian", 1), ("flow", 1), ("gaussian", 3)])
def test_a_short_run_clones_then_reinforces_and_is_evaluated(train, tmp_path, head, frames):
    cfg = replace(SHORT, model=replace(SHORT.model, action_head=head, predicted_frames=frames))
    result = train(main, cfg)
    assert set(result) == {"clone", "reinforce"}
    assert {"success_rate", "length", "episodes", "world_model", "ci"} <= result["clone"].keys()
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines[1]["loss/action"] != 0
    assert lines[1]["loss/world_model"] > 0
    assert lines[2]["rollout/episodes"] == 16
    # pointing at random succeeds now and then: there is something to learn from
    assert 0 < lines[2]["rollout/success_rate"] < 1
    assert lines[2]["optim/steps"] >= 1
    clone, learned = (load_file(tmp_path / f"run/checkpoint-{n}/student/model.safetensors") for n in (2, 3))
    assert not clone["action_head.output.weight"].equal(learned["action_head.output.weight"])
    assert clone["pos_query"].equal(learned["pos_query"])
    # what was cloned is what PPO begins with
    world = load_file(tmp_path / "run/checkpoint-2/model.safetensors")
    assert all(world[name].equal(x) for name, x in clone.items())
    report = evaluate(
        cfg, checkpoint=tmp_path / "run/checkpoint-3", episodes=5, greedy=True, dummy=False, folder=tmp_path
    )
    assert report["episodes"] == 5


@pytest.mark.slow
def test_a_run_killed_after_cloning_and_resumed_ends_as_an_unbroken_one(train, tmp_path, monkeypatch):
    task = SHORT.task_phase
    # two rollouts: the reference of the second is the one that the first began with
    task = replace(task, iterations=2, ppo=replace(task.ppo, kl_coef=0.5))
    cfg = replace(SHORT, task_phase=task, evaluation=replace(SHORT.evaluation, checkpoint_every=1))
    train(main, cfg, "unbroken")

    def kill(*parts, work=world_duel.report_on):
        if parts[-1] == 4:
            raise KeyboardInterrupt
        return work(*parts)

    with monkeypatch.context() as patched:
        patched.setattr(world_duel, "report_on", kill)
        with pytest.raises(KeyboardInterrupt):
            train(main, cfg, "killed")
    train(main, cfg, "killed", resume=True)
    for file in ("model", "student/model"):
        one, other = (
            load_file(tmp_path / f"{name}/checkpoint-4/{file}.safetensors") for name in ("killed", "unbroken")
        )
        assert all(one[key].equal(other[key]) for key in one)
    lines = [json.loads(line) for line in (tmp_path / "killed/metrics.jsonl").read_text().splitlines()]
    assert [line.get("policy/kl", 0.0) > 0 for line in lines] == [False, False, True, True]


def test_a_batch_of_demonstrations_ends_with_the_longest_of_them():
    world_model, steps = open_model(SHORT), 6
    made = TokenSequences(
        wrist=torch.zeros(4, steps + 1, 5, dtype=torch.int16),
        head=torch.zeros(4, steps + 1, 5, dtype=torch.int16),
        head_seen=torch.ones(4, dtype=torch.bool),
        state=torch.rand(4, steps + 1, 1),
        actions=torch.rand(4, steps, 8),
        text_ids=world_model.tokenize(["remember what is behind the curtain"] * 4),
        mask=torch.arange(steps)[None] < torch.tensor([2, 4, 1, 3])[:, None],
    )
    batch, _ = sample_batch(world_model, [(made, 4)], seed=0)
    assert (batch.steps, batch.frames.shape[1], batch.state.shape[1], batch.previous_actions.shape[1]) == (4, 5, 5, 5)
    assert sorted(batch.mask.sum(dim=1).tolist()) == [1, 2, 3, 4]


def test_a_clone_learns_memory_and_action_head_together():
    state = open_state(SHORT, None)
    trained = {id(p) for group in state.world_model_optimizer.param_groups for p in group["params"]}
    names = {name.split(".")[0] for name, p in state.world_model.named_parameters() if id(p) in trained}
    assert {"memory", "action_head", "foresight", "no_action", "vision", "attention"} <= names
    state.envs.close()
