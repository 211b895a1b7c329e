import importlib.util

import pytest

from lookact.envs.maniskill.device import VARIABLES, Gpu, claim_gpu, own_gpu, prepare
from lookact.envs.maniskill.env import ManiSkillTable
from lookact.errors import ConfigError, EnvError

HERE = importlib.util.find_spec("mani_skill") is not None


@pytest.mark.parametrize(
    ("environment", "count", "found"),
    [
        ({}, 0, None),
        ({"LOCAL_RANK": "3"}, 0, None),
        ({}, 4, Gpu(0, 0)),
        ({"LOCAL_RANK": "3"}, 4, Gpu(3, 3)),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "2,5"}, 2, Gpu(5, 1)),
        ({"CUDA_VISIBLE_DEVICES": " 6 , 4"}, 2, Gpu(6, 0)),
        # each process sees one, the one that its launcher gave it
        ({"LOCAL_RANK": "3", "CUDA_VISIBLE_DEVICES": "7"}, 1, Gpu(7, 0)),
        # two processes share the only one
        ({"LOCAL_RANK": "1"}, 1, Gpu(0, 0)),
    ],
)
def test_a_process_draws_on_its_own_gpu(environment, count, found):
    assert own_gpu(environment, count) == found


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"LOCAL_RANK": "2", "CUDA_VISIBLE_DEVICES": "0,1"}, "LOCAL_RANK is 2 with 2 GPUs in view"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1a,GPU-2b"}, "CUDA_VISIBLE_DEVICES is 'GPU-1a,GPU-2b': name GPUs by number"),
        ({"LOCAL_RANK": "first"}, "LOCAL_RANK is 'first'"),
    ],
)
def test_a_gpu_that_cant_be_told_is_refused(environment, reason):
    with pytest.raises(ConfigError, match=reason):
        own_gpu(environment, 2)


def test_drivers_are_told_the_machines_own_number():
    environment = {"VK_DEVICE_INDEX": "0"}
    claim_gpu(environment, Gpu(5, 1), imported=False)
    assert environment == dict.fromkeys(VARIABLES, "5")


def test_without_a_gpu_nothing_is_told():
    environment: dict[str, str] = {}
    claim_gpu(environment, None, imported=True)
    assert environment == {}


@pytest.mark.parametrize("told", [{}, {"VK_DEVICE_INDEX": "0"}, dict.fromkeys(VARIABLES[:2], "5")])
def test_a_choice_after_the_import_is_too_late(told):
    environment = dict(told)
    with pytest.raises(EnvError, match="sapien was imported before GPU 5 was chosen"):
        claim_gpu(environment, Gpu(5, 1), imported=True)
    assert environment == told


def test_a_choice_made_before_the_import_stands():
    environment = dict.fromkeys(VARIABLES, "5")
    claim_gpu(environment, Gpu(5, 1), imported=True)
    assert environment == dict.fromkeys(VARIABLES, "5")


@pytest.mark.skipif(HERE, reason="ManiSkill is installed")
@pytest.mark.parametrize("begin", [prepare, ManiSkillTable])
def test_without_the_extra_one_line_says_what_to_install(begin):
    with pytest.raises(EnvError, match=r"lookact\[maniskill,robot\].*make test-maniskill") as raised:
        begin()
    assert "\n" not in str(raised.value)
