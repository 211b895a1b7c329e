"""The policy server: what clients are told, episodes, memory by connection, batches, limits and gates."""

import asyncio
import dataclasses
import threading

import httpx
import numpy as np
import pytest

from lookact.errors import EngineError


@pytest.fixture
def client_of():
    from lookact.rollout.policy_server.client import PolicyClient

    clients = []

    def connect(url, **options):
        clients.append(PolicyClient(url, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def handshake(url, headers=None):
    """The status and the line that a refused websocket is given."""
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers=headers, proxy=None)
    response = refused.value.response
    assert b"\n" not in response.body
    return response.status_code, response.body.decode()


def test_an_episode_is_acted_as_the_policy_itself_would(serve_policy, client_of, observations, act_here):
    client, stream = client_of(serve_policy()), observations(0, 4)
    assert client.metadata["cameras"] == ["head", "wrist"]
    assert (client.metadata["image_size"], client.metadata["action_size"]) == (16, 2)
    expected = act_here(stream)
    np.testing.assert_allclose([client.act(shown) for shown in stream], expected, atol=1e-5)
    # memory and history matter: the same pictures at an episode's beginning are acted on otherwise
    assert np.abs(expected[3] - act_here(stream[3:])[0]).max() > 1e-3
    client.reset()
    np.testing.assert_allclose([client.act(shown) for shown in stream[3:]], act_here(stream[3:]), atol=1e-5)


def test_each_connection_remembers_its_own_episode_and_they_act_together(
    serve_policy, client_of, observations, act_here
):
    from lookact.rollout.policy_server.app import LIMITS

    url = serve_policy(limits=dataclasses.replace(LIMITS, batch_wait=0.05))
    streams = [observations(seed, 3) for seed in range(5)]
    clients, found = [client_of(url) for _ in streams], [None] * len(streams)

    def talk(number):
        found[number] = [clients[number].act(shown) for shown in streams[number]]

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for actions, stream in zip(found, streams):
        np.testing.assert_allclose(actions, act_here(stream), atol=1e-5)
    page = httpx.get(url.replace("ws", "http") + "/metrics").text
    numbers = dict(line.split() for line in page.splitlines() if line.startswith("lookact_") and "{" not in line)
    assert (numbers["lookact_actions_total"], numbers["lookact_sessions"]) == ("15", "5")
    assert 3 <= int(numbers["lookact_batches_total"]) < 15


def test_sampled_actions_spread_and_greedy_ones_do_not(serve_policy, client_of, observations):
    shown = observations(0, 1)[0]

    def first_actions(url):
        return np.stack([client_of(url).act(shown) for _ in range(3)])

    assert np.ptp(first_actions(serve_policy()), axis=0).max() == 0
    sampled = serve_policy(greedy=False, seed=3)
    drawn = first_actions(sampled)
    assert np.ptp(drawn, axis=0).min() > 0
    np.testing.assert_allclose(drawn, first_actions(serve_policy(greedy=False, seed=3)), atol=1e-6)


def test_a_bad_observation_is_one_line_and_the_episode_goes_on(serve_policy, client_of, observations, act_here):
    client, stream = client_of(serve_policy(renames={"camera.1": "wrist"})), observations(0, 2)
    first = client.act(stream[0])
    bad = {
        "the observation has no head, only wrist, state, instruction: send it": {**stream[1], "head": None},
        "head is float32": {**stream[1], "head": np.zeros((16, 16, 3), np.float32)},
        "the state has 2 numbers: send 3": {**stream[1], "state": np.zeros(2, np.float32)},
        "all finite": {**stream[1], "state": np.array([np.nan, 0, 0])},
        "the state holds what is no number": {**stream[1], "state": "near"},
        r"4001 exceeds max_str_len\(4000\)": {**stream[1], "instruction": "x" * 4001},
    }
    for told, shown in bad.items():
        with pytest.raises(EngineError, match=told):
            client.act({name: part for name, part in shown.items() if part is not None})
    renamed = {"camera": {"1": stream[1]["wrist"]}, "observation.images.head": stream[1]["head"]}
    last = client.act({**renamed, "observation/state": stream[1]["state"], "prompt": stream[1]["instruction"]})
    np.testing.assert_allclose([first, last], act_here(stream), atol=1e-5)


def test_pictures_of_another_size_are_resized(serve_policy, client_of, observations):
    client, (shown,) = client_of(serve_policy()), observations(0, 1)
    colour = shown["head"][0, 0]
    found = []
    for height, width in ((16, 16), (64, 48)):
        client.reset()
        found.append(client.act({**shown, "head": np.tile(colour, (height, width, 1))}))
    np.testing.assert_allclose(*found, atol=1e-6)


def test_a_policy_that_fails_costs_the_request_alone(serve_policy, client_of, observations, policy):
    class Failing:
        spec, device, frozen_vision, broken = policy.spec, policy.device, True, True

        def __getattr__(self, name):
            return getattr(policy, name)

        def sample(self, inputs, noise):
            if self.broken:
                self.broken = False
                raise RuntimeError("a tensor\nof another world")
            return policy.sample(inputs, noise)

    client, (shown,) = client_of(serve_policy(acting=Failing())), observations(0, 1)
    with pytest.raises(EngineError, match=r"the policy failed: RuntimeError$"):
        client.act(shown)
    assert client.act(shown).shape == (2,)


def test_sessions_are_bounded_and_given_back(serve_policy, client_of, observations):
    url = serve_policy(max_sessions=2)
    first, _ = client_of(url), client_of(url)
    status, line = handshake(url)
    assert (status, "2 sessions are open, which is all" in line) == (429, True)
    first.close()
    for _ in range(100):
        if httpx.get(url.replace("ws", "http") + "/health").json() == {"status": "ok", "sessions": 1}:
            break
        threading.Event().wait(0.02)
    assert client_of(url).act(observations(0, 1)[0]).shape == (2,)


def test_a_silent_connection_is_closed(serve_policy):
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    with connect(serve_policy(idle_seconds=0.2), proxy=None) as socket:
        socket.recv()
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=60)
    assert closed.value.rcvd.code == 1001
    assert "0.2 seconds" in closed.value.rcvd.reason


def test_the_token_is_demanded_in_each_form_that_clients_send_it(serve_policy, client_of):
    url = serve_policy(token="secret")
    for headers in (
        None,
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic !"},
        {"Authorization": "Api-Key"},
    ):
        status, line = handshake(url, headers)
        assert (status, "the bearer token is missing or wrong" in line) == (401, True)
    assert client_of(url, token="secret").metadata["recipe"] == "vla-ppo"
    assert client_of(url.replace("ws://", "ws://robot:secret@")).metadata["recipe"] == "vla-ppo"
    http = url.replace("ws", "http")
    assert httpx.get(f"{http}/metadata").status_code == 401
    assert httpx.get(f"{http}/metadata", headers={"Authorization": "Bearer secret"}).json()["action_size"] == 2
    assert httpx.get(f"{http}/health").json()["status"] == "ok"


def test_pages_of_a_browser_and_foreign_names_are_refused(serve_policy):
    url = serve_policy()
    assert handshake(url, {"Origin": "http://evil.example"})[0] == 403
    assert handshake(url, {"Origin": "http://127.0.0.1"})[0] == 403
    assert handshake(f"{url}/elsewhere")[0] == 403
    foreign = httpx.get(url.replace("ws", "http") + "/metadata", headers={"Host": "rebind.example"})
    assert foreign.status_code == 400


def test_a_message_too_large_ends_the_connection_alone(serve_policy, client_of, observations):
    from lookact.rollout.policy_server.app import LIMITS

    url = serve_policy(limits=dataclasses.replace(LIMITS, body_bytes=20_000))
    client = client_of(url)
    with pytest.raises(EngineError, match="1009"):
        client.act(observations(0, 1, size=128)[0])
    assert client_of(url).act(observations(0, 1)[0]).shape == (2,)


def test_what_waits_too_long_is_refused_and_does_not_move_the_episode(policy, observations):
    from lookact.rollout.policy_server.app import LIMITS
    from lookact.rollout.policy_server.batching import PolicyEngine
    from lookact.rollout.policy_server.observations import Shown
    from lookact.serving.limits import Refused

    limits = dataclasses.replace(LIMITS, request_seconds=0.01, queue=1)
    shown = {name: part for name, part in observations(0, 1)[0].items() if name != "instruction"}

    async def ask():
        engine = PolicyEngine(policy, limits, greedy=True, seed=0)
        session = engine.open()
        waiting = asyncio.ensure_future(engine.act(session, Shown(shown, "")))
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="too many observations wait"):
            await engine.act(session, Shown(shown, ""))
        # nobody runs the engine
        with pytest.raises(Refused, match="no action within"):
            await waiting
        running = asyncio.ensure_future(engine.run())
        await asyncio.sleep(0.05)
        running.cancel()
        return session, engine.batches

    session, batches = asyncio.run(ask())
    assert batches == 0
    assert float(session.history.abs().sum()) == 0


def test_what_a_message_is_decoded_to_counts_against_the_budget(serve_policy, client_of, observations):
    from lookact.rollout.policy_server.app import LIMITS
    from lookact.rollout.policy_server.codec import pack

    (shown,) = observations(0, 1)
    arrays = 2 * 16 * 16 * 3 + 3 * 4
    room = len(pack({**shown, "reset": True}, binary_names=True)) + arrays
    assert client_of(serve_policy(limits=dataclasses.replace(LIMITS, held_bytes=room))).act(shown).shape == (2,)
    tight = client_of(serve_policy(limits=dataclasses.replace(LIMITS, held_bytes=room - 1)))
    for _ in range(2):
        with pytest.raises(EngineError, match="holds as much as it can"):
            tight.act(shown)
    # nothing of what was refused is still held
    assert tight.act({**shown, "head": shown["head"][:8]}).shape == (2,)
