"""Run folders and episodes made by hand, a real server over them, and a real browser where one is installed."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import replace

import httpx
import numpy as np
import pytest
import yaml
from tokenizers import AddedToken, Tokenizer, decoders, models

from lookact.data.episode_store import EpisodeStore
from lookact.serving.limits import Limits
from lookact.text.actions import _byte_of_character
from lookact.types import Decision, Episode, FloorMap, Observation, Turn
from lookact.viewer.app import create_app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SECONDS = 30.0
LONG_AGO = 1_000_000_000
REPLY = 'Left. {"forward_meters": 1.0}'
END = 256


@pytest.fixture
def write_run():
    """Writes a run folder: lines of numbers, and whatever else a run leaves."""

    def write(folder, lines=(), *, seed=0, config=None, result=None, log="", changed=LONG_AGO):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump({"seed": seed, **(config or {})}))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / "training.log").write_text(log)
        if result is not None:
            (folder / "result.json").write_text(json.dumps(result))
        for path in folder.iterdir():
            os.utime(path, (changed, changed))
        return folder

    return write


@pytest.fixture
def write_tokenizer():
    """Writes a byte-level tokenizer whose id of a byte is the byte itself, and 256 the token that ends a reply."""

    def write(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = Tokenizer(models.BPE(dict(_byte_of_character()), []))
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True)])
        tokenizer.save(str(folder / "tokenizer.json"))
        return folder / "tokenizer.json"

    return write


def make_turn(number, reward, *, terminated=False, reply=REPLY):
    """A turn whose action's bytes count; its picture is as bright as its number."""
    ids = np.array([*reply.encode(), END], dtype=np.int64)
    start = reply.index("{")
    mask = np.array([at >= start and at < len(ids) - 1 for at in range(len(ids))])
    seen = Observation(text=f"Turn {number + 1}.", images={"head": np.full((4, 6, 3), 40 * number, dtype=np.uint8)})
    decision = Decision(reply, np.full(len(ids), -0.5, np.float32), mask, ids, np.arange(3), mask_method="brace_depth")
    return Turn(seen, decision, reward, terminated, False, {"question": "Find the bed.", "success": terminated})


@pytest.fixture
def write_episodes():
    """Writes a store of two episodes: one that arrived after three turns, and one that an error ended."""

    def write(folder):
        store = EpisodeStore(folder)
        last = Observation(text="Arrived.", images={"head": np.full((4, 6, 3), 200, dtype=np.uint8)})
        turns = (make_turn(0, 0.25), make_turn(1, -0.5), make_turn(2, 1.0, terminated=True))
        store.add(Episode("one", 0, 2**60 + 1, turns, last, policy_version=7))
        store.add(Episode("two", 1, 5, (make_turn(0, 0.0),), None, error="the world broke"))
        return folder

    return write


@pytest.fixture
def write_walk():
    """Writes a store of one episode with a map: a step to the right, then a turn and a step up."""

    def write(folder):
        poses = [(1.0, 2.0, 0.0, 1.2), (2.0, 2.0, 0.0, 1.2), (2.0, 3.0, np.pi / 2, 1.2)]
        seen = [Observation("look", {"head": np.zeros((4, 4, 3), np.uint8)}, state=np.array(p, "f4")) for p in poses]
        turns = [make_turn(number, 0.5, terminated=number == 1) for number in range(2)]
        turns = tuple(replace(turn, observation=each) for turn, each in zip(turns, seen))
        room = FloorMap(np.full((60, 60, 3), 200, np.uint8), (1.0, 2.0), 10.0)
        EpisodeStore(folder).add(Episode("walk", 0, 5, turns, seen[2], floor_map=room))
        return folder

    return write


@pytest.fixture
def write_steps():
    """Writes a store of one episode of two action vectors."""

    def write(folder, steps=2):
        none = np.zeros(0, np.float32)
        seen = Observation("Push the cube.", {"wrist": np.full((4, 4, 3), 9, np.uint8)}, state=np.ones(3, "f4"))
        decision = Decision(np.array([0.5, -1.0], "f4"), none, none > 0)
        turns = [Turn(seen, decision, 0.5, False, number == steps - 1, {"success": False}) for number in range(steps)]
        EpisodeStore(folder).add(Episode("steps", 0, 5, tuple(turns), seen))
        return folder

    return write


@pytest.fixture
def serve_folder(serve_app):
    """Serves folders from threads of this process; gives each one's address."""

    def start(root):
        url = serve_app(create_app(root), Limits(request_seconds=5.0))
        httpx.Client(transport=httpx.HTTPTransport(retries=8, verify=False)).get(url)
        return url

    return start


class Browser:
    """A browser spoken to over a pipe, in the DevTools protocol."""

    def __init__(self, folder):
        # the browser reads from its descriptor 3 and writes to 4
        take, self.give = os.pipe()
        self.take, give = os.pipe()
        command = f"exec {CHROMIUM} --headless=new --no-sandbox --disable-gpu --remote-debugging-pipe"
        options = f"--window-size=1200,900 --user-data-dir={folder} about:blank 3<&{take} 4>&{give}"
        self.process = subprocess.Popen(
            ["bash", "-c", f"{command} {options}"], pass_fds=(take, give), stderr=subprocess.DEVNULL
        )
        os.close(take)
        os.close(give)
        self.held, self.number, self.session, self.complaints = b"", 0, None, []
        pages = self.ask("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in pages if each["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **words):
        self.number += 1
        message = {"id": self.number, "method": method, "params": words}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.give, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.hear()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def hear(self):
        while b"\0" not in self.held:
            data = os.read(self.take, 1 << 16)
            assert data, "the browser has gone"
            self.held += data
        line, _, self.held = self.held.partition(b"\0")
        message = json.loads(line)
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(message["params"]["exceptionDetails"])
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.complaints.append(message["params"]["entry"])
        return message

    def run(self, script):
        """What a line of JavaScript gives in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, address):
        # by way of an empty page: another place in the same page is not loaded anew
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=address)
        self.wait("document.documentElement?.hasAttribute('data-ready')")

    def wait(self, script):
        """Waits until a line of JavaScript holds."""
        deadline = time.monotonic() + SECONDS
        while not (value := self.run(script)):
            assert time.monotonic() < deadline, f"{script} did not come about: {self.run('document.body.innerText')}"
            time.sleep(0.05)
        return value

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.give)
        os.close(self.take)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium runs this")
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()
