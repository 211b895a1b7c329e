"""nav-rloo shared by processes and by workers on Ray comes to the same end as in one process."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file

from lookact.algorithms.rollouts import rollout_metrics
from lookact.algorithms.vlm_settings import RaySettings
from lookact.config import to_mapping
from lookact.recipes.rloo.train import main
from lookact.training.run import open_run
from lookact.training.settings import Parallel
from lookact.types import Episode

pytestmark = pytest.mark.slow
ROUNDING = ("policy/mismatch_gap_max", "policy/approx_kl")
"""Numbers that consist of nothing else."""


def run_to(cfg, folder, updates, kind="data", ray=None):
    """The recipe up to an update, going on with what is in the folder."""
    cfg = replace(cfg, learn=replace(cfg.learn, iterations=updates), parallel=Parallel(kind=kind), ray=ray or cfg.ray)
    with open_run(folder, to_mapping(cfg), auto_resume=True, tensorboard=False) as run:
        main(cfg, run)


def told(folder):
    """Every step's numbers over all processes."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    own = ("time/", "rollout/mask_", "rollout/dropout_rate", *ROUNDING)
    return [{k: v for k, v in line.items() if not k.startswith(own)} for line in lines]


def weights(folder, step):
    return {name: tensor.numpy() for name, tensor in load_file(folder / f"checkpoint-{step}/model.safetensors").items()}


def assert_same_end(one, other, step, tolerance=2e-5):
    assert len(told(one)) == len(told(other)) == step
    for a, b in zip(told(one), told(other)):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-4)
    for name, value in weights(one, step).items():
        assert np.abs(value - weights(other, step)[name]).max() <= tolerance, name


@pytest.fixture(scope="module")
def settings(nav_started):
    # plain steps of a size: Adam would turn rounding near 0 into steps of the learning rate's
    learn = replace(nav_started.learn, groups=3, epochs=2, lr=1e-4, adam_eps=1e-3)
    return replace(nav_started, learn=learn, kl=replace(nav_started.kl, reference="ema", target=0.01, horizon=80))


@pytest.fixture(scope="module")
def one(settings, tmp_path_factory):
    """Four updates in one process, saved after each."""
    folder = tmp_path_factory.mktemp("one")
    run_to(settings, folder, 4)
    assert sum(line["optim/grad_norm"] for line in told(folder)) > 0
    return folder


@pytest.mark.parametrize("order", [(2, 1), (1, 2)])
def test_shards_of_two_processes_learn_what_one_does_and_hand_over_to_it(settings, one, together, tmp_path, order):
    for processes, updates in zip(order, (2, 4)):
        if processes == 1:
            run_to(settings, tmp_path, updates)
        else:
            together(run_to, settings, tmp_path, updates, "shard")
    assert_same_end(one, tmp_path, 4)


ON_RAY = RaySettings(workers=1, episodes_per_task=4)


def test_a_killed_driver_takes_its_workers_along_and_resumes_to_the_same_end(settings, one, killed_at, tmp_path):
    pytest.importorskip("ray", reason="needs lookact[ray]")
    killed_at(3, lambda: run_to(settings, tmp_path, 4, ray=ON_RAY))
    run_to(settings, tmp_path, 4, ray=ON_RAY)
    assert_same_end(one, tmp_path, 4)


@pytest.fixture(scope="module")
def cluster():
    """A small Ray cluster of this process's own."""
    pytest.importorskip("ray", reason="needs lookact[ray]")
    from lookact.rollout.ray.pool import join_cluster, leave_cluster

    join_cluster(cpus=2, store_bytes=80 * 2**20)
    yield
    leave_cluster()


def test_one_worker_and_two_learn_the_same_to_the_last_bit(settings, one, cluster, tmp_path):
    for workers in (1, 2):
        run_to(settings, tmp_path / str(workers), 4, ray=replace(ON_RAY, workers=workers))
    first, second = tmp_path / "1", tmp_path / "2"
    assert told(first) == told(second)
    assert_same_end(first, second, 4, tolerance=0)
    # beside one process that acts in one batch, rounding alone differs
    assert_same_end(one, first, 4)


def test_acting_ahead_lags_by_one_update_and_never_over_a_checkpoint(settings, cluster, tmp_path):
    cfg = replace(settings, evaluation=replace(settings.evaluation, every=3))
    ahead = replace(ON_RAY, staleness=1)
    run_to(cfg, tmp_path / "unbroken", 6, ray=ahead)
    assert [line["rollout/staleness"] for line in told(tmp_path / "unbroken")] == [0, 1, 1, 0, 1, 1]
    for updates in (3, 6):
        run_to(cfg, tmp_path / "resumed", updates, ray=ahead)
    assert told(tmp_path / "resumed") == told(tmp_path / "unbroken")
    assert_same_end(tmp_path / "resumed", tmp_path / "unbroken", 6, tolerance=0)


def test_staleness_is_of_the_oldest_episode():
    episodes = [Episode(str(version), 0, 0, (), policy_version=version) for version in (4, 5)]
    assert rollout_metrics(episodes, {}, 6)["rollout/staleness"] == 1
