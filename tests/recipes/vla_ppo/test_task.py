import pickle
import subprocess
import sys

import numpy as np
import pytest

from lookact.envs.tabletop.randomise import HELD_OUT_PAIRS, SEEN_SURFACES, TOOL_START, instruction_corpus
from lookact.recipes.vla_ppo.config import EnvConfig
from lookact.recipes.vla_ppo.evaluate import OOD_SHIFTS
from lookact.recipes.vla_ppo.task import table_maker
from lookact.recipes.world_duel.config import EnvConfig as WorldDuelEnv
from lookact.recipes.world_duel.f1.environments import env_maker


def test_the_table_is_as_the_settings_say():
    settings = EnvConfig(task="push", cameras=("wrist",), image_size=32, max_steps=7, distractors=1, clutter=True)
    env = table_maker(settings)()
    shown, info = env.reset(seed=0)
    assert set(shown) == {"wrist", "state", "instruction"}
    assert shown["wrist"].shape == (32, 32, 3)
    assert info["task"] == "push"
    assert env.max_steps == 7
    assert len(env.look.objects) == 2
    assert env.look.clutter
    env.close()


@pytest.mark.parametrize("control", ["ee_delta", "delta_qpos"])
def test_sizes_are_the_environments(control):
    settings = EnvConfig(control=control, image_size=32)
    env = table_maker(settings)()
    assert env.action_space.shape == (settings.shapes.action_size,)
    assert env.observation_space["state"].shape == (settings.shapes.state_size,)


@pytest.mark.parametrize("shift", OOD_SHIFTS)
def test_out_of_distribution_is_what_training_never_shows(shift):
    inside, outside = (table_maker(EnvConfig(cameras=()), shift=each)() for each in ("none", shift))
    words = set(instruction_corpus("pick_place"))
    for seed in range(20):
        inside.reset(seed=seed)
        outside.reset(seed=seed)
        assert inside.instruction in words
        assert (outside.instruction not in words) == (shift in ("semantics", "wording", "pairs"))
        assert (outside.look.objects[0] in HELD_OUT_PAIRS) == (shift in ("semantics", "pairs"))
        assert (outside.look.surfaces[0] >= SEEN_SURFACES) == (shift in ("vision", "surfaces"))
        assert (outside.look.lights.min() < 0.1) == (shift in ("vision", "light"))
        assert (not np.allclose(outside.look.eye, inside.look.eye)) == (shift in ("vision", "camera"))
        lies = not np.allclose(outside.start.objects, inside.start.objects)
        assert lies == (shift in ("execution", "places"))
        far = np.any(np.abs(outside.start.tool - TOOL_START) > [0.03, 0.03, 0.02])
        assert far == (shift in ("execution", "start_pose"))
        assert (outside.dynamics.friction < 0.75) == (shift in ("dynamics", "friction"))
        assert (not 0.7 < outside.dynamics.mass < 1.5) == (shift in ("dynamics", "mass"))
        assert outside.dynamics.latency == (shift in ("dynamics", "latency"))


WITHOUT_TORCH = """
import pickle, sys
env = pickle.load(sys.stdin.buffer)()
print(type(env).__name__, sorted({"torch", "transformers", "peft"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("maker", "name"),
    [
        (table_maker(EnvConfig(cameras=())), "Tabletop"),
        (env_maker(WorldDuelEnv(name="noisy_tv")), "NoisyTV"),
        (env_maker(WorldDuelEnv(name="memory_curtain")), "MemoryCurtain"),
    ],
)
def test_a_worker_process_makes_its_environment_without_loading_torch(maker, name):
    command = [sys.executable, "-c", WITHOUT_TORCH]
    made = subprocess.run(command, input=pickle.dumps(maker), capture_output=True, check=True)
    assert made.stdout.decode().split() == [name, "[]"]
