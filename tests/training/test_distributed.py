import json
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from lookact.algorithms.vlm_settings import RaySettings
from lookact.training.distributed import (
    DEFAULT_TIMEOUT_S,
    TIMEOUT,
    all_reduce_sum,
    barrier,
    broadcast,
    close_distributed,
    gather,
    init_distributed,
    is_distributed,
    is_main,
    rank,
    sum_gradients,
    world_size,
)

TWO_PROCESSES = """
import json, sys
from pathlib import Path
import torch
from torch import nn
from lookact.training.distributed import (
    all_reduce_sum, barrier, broadcast, close_distributed, gather, init_distributed, is_main, rank,
    sum_gradients, world_size,
)
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step
from lookact.training.run import open_run

init_distributed()
out = Path(sys.argv[1])
me = rank()
found = {"rank": me, "size": world_size(), "main": is_main(), "sum": all_reduce_sum(me + 1.5)}
found["broadcast"] = broadcast({"path": "from rank 0"} if me == 0 else None)
found["gather"] = gather(f"rank {me}")

# rank 0 has 3 rows, rank 1 has 1: together the mean over 4
rows = torch.arange(8.0).reshape(4, 2)[:3] if me == 0 else torch.arange(8.0).reshape(4, 2)[3:]
model = nn.Linear(2, 1, bias=False)
nn.init.ones_(model.weight)
loss, _ = accumulate([rows], lambda x: (model(x).mean(), {}), len)
sum_gradients(model.parameters())
found["loss"], found["gradient"] = loss, model.weight.grad.tolist()

# a rank where nothing counts waits for no one and keeps no one waiting
_, found["metrics"] = accumulate([rows], lambda x: (model(x).mean(), {"rows": 5.0}), lambda x: 0 if me else 3)
sum_gradients(model.parameters())

# one rank's bad loss keeps every rank from stepping
guard = NonFiniteGuard()
optimizer = build_adamw({"model": model}, lr=0.1)
clip_and_step(optimizer, model.parameters(), max_norm=1.0, guard=guard, loss=float("nan") if me else 0.0)
found["skipped"], found["weight"] = guard.skipped, model.weight.tolist()

parts = {"weights": {"model": model}, "state": {"guard": guard}}
for total in (1, 2):
    with open_run(out / "run", {}, auto_resume=True, tensorboard=False) as run:
        found[f"done before {total}"] = run.done
        run.restore(**parts)
        for step in run.steps(total):
            run.log({"loss/total": float(me)}, step)
            run.save(step, **parts, metrics={})
    barrier()
(out / f"{me}.json").write_text(json.dumps(found))
close_distributed()
"""


def test_one_process_is_the_main_one_and_reduces_to_itself(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    device = init_distributed()
    barrier()
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    sum_gradients([weight])
    assert (is_distributed(), rank(), world_size(), is_main()) == (False, 0, 1, True)
    assert (all_reduce_sum(2.5), broadcast("x")) == (2.5, "x")
    assert gather("x") == ["x"]
    assert weight.grad.tolist() == [1.0]
    assert device.type in ("cpu", "cuda")
    close_distributed()


@pytest.mark.parametrize(("told", "seconds"), [(None, 7200.0), ("90", 90.0)])
def test_processes_wait_longer_for_one_another_than_workers_may_take(monkeypatch, told, seconds):
    asked = {}
    monkeypatch.setattr(dist, "init_process_group", lambda backend, timeout: asked.update(timeout=timeout))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv(TIMEOUT, raising=False)
    if told is not None:
        monkeypatch.setenv(TIMEOUT, told)
    init_distributed()
    assert asked["timeout"].total_seconds() == seconds
    assert RaySettings().timeout_s < DEFAULT_TIMEOUT_S


@pytest.mark.slow
def test_two_processes_are_as_one(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*torchrun, script, tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads((tmp_path / f"{me}.json").read_text()) for me in (0, 1)]
    shared = {
        "size": 2,
        "sum": 4.0,
        "gather": ["rank 0", "rank 1"],
        "broadcast": {"path": "from rank 0"},
        "loss": 7.0,
        "gradient": [[3.0, 4.0]],
        "metrics": {"rows": 5.0},
        "skipped": 1,
        "weight": [[1.0, 1.0]],
        "done before 1": 0,
        "done before 2": 1,
    }
    assert found == [shared | {"rank": 0, "main": True}, shared | {"rank": 1, "main": False}]
    lines = (tmp_path / "run/metrics.jsonl").read_text()
    assert lines == '{"step": 1, "loss/total": 0.0}\n{"step": 2, "loss/total": 0.0}\n'
