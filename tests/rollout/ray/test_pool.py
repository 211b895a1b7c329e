"""Workers on a real, small Ray cluster: killed, blocked and broken, they lose no episode and run none twice."""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

from lookact.errors import ConfigError, EngineError, StaleWeights
from lookact.rollout.ray.worker import RolloutWorker, WorkerContext, pack_weights, unpack_weights
from lookact.types import Decision, EpisodeSpec, Observation

SPECS = [EpisodeSpec(id=f"p{i}", group=i // 2, seed=10 + i) for i in range(8)]


def make_context(folder):
    """A context of which everything is sent by value: Ray's processes can't import tests."""

    class Walk:
        """Two turns, noted in a file; where a file is named after a spec's seed, it blocks or dies, once or always."""

        def reset(self, *, seed, options):
            self.seed, self.turn = seed, 0
            with (folder / "begun").open("a") as file:
                file.write(f"{seed}\n")
            return self.look(), {}

        def step(self, action):
            self.turn += 1
            for fate in folder.glob(f"{self.seed}-*"):
                if fate.name.endswith("once"):
                    fate.unlink()
                if "die" in fate.name:
                    os._exit(1)
                (folder / "blocked").write_text(str(os.getpid()))
                time.sleep(3600)
            return self.look(), float(action[0]), self.turn == 2, False, {}

        def look(self):
            return Observation(state=np.array([self.seed, self.turn], np.float32))

        def close(self):
            pass

    class Slow(nn.Linear):
        """Blocks, where a file says so, when it is asked for the weights it has taken."""

        def get_parameter(self, name):
            if (folder / "slow-load").exists():
                (folder / "slow-load").unlink()
                (folder / "blocked").write_text(str(os.getpid()))
                time.sleep(3600)
            return super().get_parameter(name)

    class Drawing:
        """Acts by its weights, what it sees, and the row's own random stream."""

        version = 0

        def __init__(self, model):
            self.model, self.streams = model, {}

        def begin(self, row, seed):
            self.streams[row] = np.random.default_rng(seed)

        @torch.no_grad()
        def act(self, rows, observations):
            seen = torch.from_numpy(np.stack([o.state for o in observations]))
            means = self.model(seen)[:, 0].numpy()
            drawn = [mean + self.streams[row].normal() for row, mean in zip(rows, means)]
            one = np.ones(1, bool)
            return [Decision(np.array([a], np.float32), np.array([a], np.float32), one) for a in drawn]

        def end(self, row):
            del self.streams[row]

    def build():
        model = Slow(2, 1)
        return WorkerContext(actor=Drawing(model), envs=[Walk(), Walk()], model=model)

    return build


def weights(scale):
    return {"weight": torch.full((1, 2), scale), "bias": torch.zeros(1)}


def content(episodes):
    """All that an episode is, bit for bit."""
    return [
        (e.id, e.group, e.policy_version, e.error, [(t.reward, t.decision.action.tobytes()) for t in e.turns])
        for e in episodes
    ]


def expected(folder, scale, version):
    """The same episodes by one worker in this process."""
    worker = RolloutWorker(make_context(folder))
    worker.load(pack_weights(weights(scale)), version)
    return content([e for start in range(0, 8, 2) for e in worker.run(SPECS[start : start + 2], version)])


def test_weights_travel_bit_for_bit_in_every_precision():
    sent = {"a": torch.randn(3, 2), "b": torch.randn(4).bfloat16(), "c": torch.tensor(7)}
    for name, tensor in unpack_weights(pack_weights(sent)):
        assert tensor.dtype == sent[name].dtype
        assert torch.equal(tensor, sent[name])


def test_a_worker_refuses_specs_for_weights_it_does_not_have(tmp_path):
    worker = RolloutWorker(make_context(tmp_path))
    with pytest.raises(StaleWeights, match="version -1 of the weights, not 0"):
        worker.run(SPECS[:1], 0)
    worker.load(pack_weights(weights(1.0)), 4)
    assert worker.run(SPECS[:1], 4)[0].policy_version == 4
    with pytest.raises(StaleWeights, match="another model"):
        worker.load(pack_weights({"other": torch.zeros(1)}), 5)
    # what failed half-way is no version at all
    with pytest.raises(StaleWeights, match="version -1"):
        worker.run(SPECS[:1], 4)


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="needs lookact[ray]")
    from lookact.rollout.ray.pool import join_cluster, leave_cluster

    join_cluster(cpus=2, store_bytes=80 * 2**20)
    yield
    leave_cluster()


@pytest.fixture
def open_pool(cluster, tmp_path):
    from lookact.rollout.ray.pool import RayPool

    pools = []

    def open_one(workers=2, **options):
        pools.append(RayPool(make_context(tmp_path), workers=workers, chunk_size=2, **options))
        return pools[-1]

    yield open_one
    for pool in pools:
        pool.close()


def kill_blocked(folder):
    """SIGKILL the worker that says it is blocked."""
    said = folder / "blocked"
    while not (said.exists() and said.read_text()):
        time.sleep(0.02)
    os.kill(int(said.read_text()), signal.SIGKILL)
    said.unlink()


@pytest.mark.slow
def test_workers_killed_over_episodes_and_over_weights_change_nothing(open_pool, tmp_path):
    pool = open_pool()
    pool.push(weights(1.0), 1)
    whole = expected(tmp_path, 1.0, 1)
    assert content(pool.collect(SPECS)) == whole

    # in the middle of an episode
    (tmp_path / "begun").unlink()
    (tmp_path / "14-block-once").touch()
    coming = pool.start(SPECS)
    kill_blocked(tmp_path)
    assert content(coming.result()) == whole
    assert pool.lost == 1
    begun = sorted((tmp_path / "begun").read_text().split())
    assert begun == sorted([*(str(spec.seed) for spec in SPECS), "14", "15"])

    # while it takes new weights
    (tmp_path / "slow-load").touch()
    killer = threading.Thread(target=kill_blocked, args=(tmp_path,))
    killer.start()
    pool.push(weights(2.0), 2)
    killer.join()
    assert pool.lost == 2
    assert content(pool.collect(SPECS)) == expected(tmp_path, 2.0, 2) != whole


@pytest.mark.slow
def test_one_worker_gives_what_two_give_and_an_episode_that_kills_is_data(open_pool, tmp_path):
    pool = open_pool(workers=1)
    pool.push(weights(1.0), 1)
    whole = expected(tmp_path, 1.0, 1)
    assert content(pool.collect(SPECS)) == whole
    (tmp_path / "13-die-always").touch()
    ended = pool.collect(SPECS)
    assert pool.lost == 2
    assert [episode.id for episode in ended] == [spec.id for spec in SPECS]
    assert [episode.error is not None for episode in ended] == [False, False, True, True, False, False, False, False]
    assert "a worker died" in ended[3].error
    assert content(ended)[4:] == whole[4:]


@pytest.mark.slow
def test_a_worker_that_times_out_is_replaced(open_pool, tmp_path):
    pool = open_pool(workers=1, timeout_s=20.0)
    pool.push(weights(1.0), 1)
    (tmp_path / "11-block-once").touch()
    assert content(pool.collect(SPECS)) == expected(tmp_path, 1.0, 1)
    assert pool.lost == 1


@pytest.mark.slow
def test_what_cannot_work_says_so(open_pool, cluster, tmp_path):
    from lookact.rollout.ray.pool import RayPool

    with pytest.raises(ConfigError, match="9 workers need 9 CPU, the Ray cluster has 2"):
        open_pool(workers=9)

    def broken():
        raise ValueError("no such room")

    pool = RayPool(broken, workers=1, chunk_size=2)
    with pytest.raises(EngineError, match=r"could not be built: .*no such room"):
        pool.push(weights(1.0), 0)
    pool.close()


def test_a_cluster_started_here_listens_on_loopback_alone(cluster):
    import psutil
    import ray

    ray.get(ray.remote(lambda: 1).remote())
    heard = set()
    for process in psutil.Process().children(recursive=True):
        # workers of the tests before may be on their way out
        with contextlib.suppress(psutil.NoSuchProcess):
            sockets = [each for each in process.net_connections("inet") if each.status == "LISTEN"]
            heard |= {each.laddr.ip.removeprefix("::ffff:") for each in sockets}
    assert heard == {"127.0.0.1"}
