"""The real clients of openpi and vla-eval, and a harness of vla-eval's that runs an episode."""

import asyncio
import importlib.util

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("openpi_client", "vla_eval")),
    reason="openpi-client or vla-eval is absent: `make test-interop` runs this",
)


def address(url):
    host, port = url.removeprefix("ws://").split(":")
    return {"host": host, "port": int(port)}


def test_openpis_client_gets_actions(serve_policy, observations, act_here):
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    url, stream = serve_policy(token="secret"), observations(0, 3)
    client = WebsocketClientPolicy(**address(url), api_key="secret")
    assert client.get_server_metadata()["cameras"] == ["head", "wrist"]
    names = {"head": "observation/head", "wrist": "observation/wrist", "state": "observation/state"}
    names["instruction"] = "prompt"
    sent = [{names[name]: part for name, part in shown.items()} for shown in stream]
    found = [client.infer(shown) for shown in ({**sent[0], "reset": True}, *sent[1:])]
    assert found[0]["actions"].shape == (1, 2)
    assert found[0]["actions"].dtype == np.float32
    assert found[0]["server_timing"]["infer_ms"] > 0
    np.testing.assert_allclose([answer["actions"][0] for answer in found], act_here(stream), atol=1e-5)
    with pytest.raises(RuntimeError, match="the observation has no head"):
        client.infer({"prompt": "go"})
    assert client.infer(sent[0])["actions"].shape == (1, 2)


@pytest.mark.parametrize("form", ["png", "raw"])
def test_vla_evals_client_gets_actions(serve_policy, observations, act_here, form):
    from vla_eval.connection import Connection
    from vla_eval.protocol.numpy_codec import set_image_format

    url, stream = serve_policy(token="secret"), observations(0, 3)
    told = [{"images": {"head": s["head"], "wrist": s["wrist"]}, "states": s["state"]} for s in stream]
    told = [shown | {"task_description": s["instruction"]} for shown, s in zip(told, stream)]

    async def episodes():
        async with Connection(url.replace("ws://", "ws://robot:secret@") + "/vla-eval", max_retries=1) as connection:
            hello, found = dict(connection.server_info), []
            for _ in range(2):
                await connection.start_episode({"task": {"name": "lift"}})
                found.append([(await connection.act(shown))["actions"] for shown in told])
                await connection.end_episode({"metrics": {}})
            with pytest.raises(RuntimeError, match="the observation has no head"):
                await connection.act({})
            return hello, found

    set_image_format(form)
    try:
        hello, found = asyncio.run(episodes())
    finally:
        set_image_format("png")
    assert hello["protocol_version"] == 1
    assert hello["metadata"]["action_size"] == 2
    # the second episode begins anew
    np.testing.assert_allclose(found, [act_here(stream)] * 2, atol=1e-5)


def test_vla_evals_runner_runs_an_episode(serve_policy, observations, act_here):
    from vla_eval.connection import Connection
    from vla_eval.runners.sync_runner import SyncEpisodeRunner

    stream, done = observations(1, 3), []

    class Table:
        async def start_episode(self, task, *, recorder=None):
            assert task["name"] == "lift"

        async def get_observation(self):
            shown = stream[len(done)]
            images = {name: shown[name] for name in ("head", "wrist")}
            return {"images": images, "state": shown["state"], "task_description": shown["instruction"]}

        async def apply_action(self, action):
            done.append(action["actions"])

        async def is_done(self):
            return len(done) == len(stream)

        async def get_time(self):
            return 0.0

        async def get_result(self):
            return {"success": True}

    async def episode():
        async with Connection(serve_policy() + "/vla-eval", max_retries=1) as connection:
            return await SyncEpisodeRunner().run_episode(Table(), {"name": "lift"}, connection, max_steps=5)

    assert asyncio.run(episode())["steps"] == 3
    np.testing.assert_allclose(done, act_here(stream), atol=1e-5)
