import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor

from lookact.batch import Batch, TokenInputs
from lookact.models.vlm.loading import LoraSpec, load_chat
from lookact.models.vlm.reference import AdapterReference, CopyReference
from lookact.ops.losses import reinforce
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.training.distributed import (
    fsdp_modules,
    in_step,
    rank,
    shard,
    shard_policy,
    sum_gradients,
    unsharded,
    world_size,
)
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step
from lookact.training.run import open_run
from lookact.types import EpisodeSpec, Observation

STEPS = 3


def make_batches(chat, number=5):
    """Ragged micro-batches with a picture in each row and random credit."""
    rng = np.random.default_rng(0)
    batches = []
    for index in range(number):
        rows, length = 1 + index % 2, 24 + 3 * index
        pixels, grids = chat.encode_images([rng.integers(0, 256, (64, 64, 3), dtype=np.uint8) for _ in range(rows)])
        count = chat.image_token_counts(grids)[0]
        ids = torch.from_numpy(rng.integers(20, 300, (rows, length)))
        ids[:, 1 : 1 + count] = chat.image_pad_id
        positions = torch.arange(length - 8, length).expand(rows, -1)
        mask = torch.from_numpy(rng.random((rows, 8)) < 0.7)
        some = torch.zeros(rows)
        advantages = torch.from_numpy(rng.normal(size=(rows, 8)).astype(np.float32))
        patches = len(pixels) // rows
        inputs = TokenInputs(
            ids,
            torch.ones_like(ids, dtype=torch.bool),
            positions,
            torch.split(pixels, patches),
            torch.split(grids, 1),
        )
        nothing = torch.zeros(rows, 8)
        batches.append(Batch(inputs, mask, nothing, nothing.long(), nothing, some, some.long(), some > 0, advantages))
    return batches


def learn(chat, batches, reference=None, steps=STEPS):
    """A few learning steps on this process's share of the batches: every step's loss and gradient norm."""
    # a larger epsilon: the sign of a gradient that is only rounding is no weight of one process or another
    optimizer, guard = build_adamw({"policy": chat}, lr=1e-3, eps=1e-5), NonFiniteGuard()
    told = []
    for _ in range(steps):
        loss, norm = learn_once(chat, batches, optimizer, guard, reference)
        told.append((loss, norm))
    return told, optimizer


def learn_once(chat, batches, optimizer, guard, reference=None):
    def loss_fn(batch):
        logprobs = chat.evaluate(batch.inputs).logprobs
        loss, _ = reinforce(logprobs, batch.advantages, batch.mask)
        if reference is not None:
            loss = loss + (logprobs - reference.evaluate(batch.inputs).logprobs).square().mean()
        return loss, {"loss/policy": loss.detach()}

    mine = batches[rank() :: world_size()]
    loss, _ = accumulate(mine, loss_fn, lambda batch: batch.mask.sum(), policy=chat)
    sum_gradients(chat.parameters())
    metrics = clip_and_step(optimizer, chat.parameters(), max_norm=1.0, guard=guard, loss=loss)
    return loss, metrics["optim/grad_norm"]


def weights_of(chat):
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().numpy().copy()
        for name, value in chat.state_dict().items()
    }


def assert_same_weights(one, other, tolerance):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.abs(value - other[name]).max() <= tolerance, name


def learned_by(chat, kind, number):
    shard_policy(chat, kind)
    told, _ = learn(chat, make_batches(chat, number))
    return told, weights_of(chat), len(fsdp_modules(chat))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "number"), [("data", 5), ("shard", 5), ("shard", 1)])
def test_two_processes_learn_what_one_does(chat, together, kind, number):
    # with one micro-batch the second process has none of its own
    (two, weights, parts), (_, other, _) = together(learned_by, chat, kind, number)
    assert parts == (0 if kind == "data" else 1 + len(chat.causal.model.language_model.layers))
    one, _ = learn(chat, make_batches(chat, number))
    assert np.array(two) == pytest.approx(np.array(one), rel=1e-4, abs=1e-6)
    assert np.array(one)[:, 1].min() > 0
    # Adam turns rounding near 0 into steps of the learning rate's size, so weights agree to a share of that
    assert_same_weights(weights, weights_of(chat), 1e-4)
    assert_same_weights(weights, other, 0)


def test_one_process_is_never_sharded(chat):
    shard_policy(chat, "shard")
    assert fsdp_modules(chat) == []
    batches = [("a", 2.0), ("b", 0.0), ("c", 1.0)]
    assert list(in_step(batches, chat)) == [("a", 2.0), ("c", 1.0)]


class Room:
    """Three turns of noise that depends on the seed alone."""

    def reset(self, *, seed, options):
        self.rng = np.random.default_rng(seed)
        self.turn = 0
        return self.look(), {}

    def step(self, action):
        self.turn += 1
        return self.look(), float(len(action)), self.turn == 3, False, {}

    def look(self):
        image = self.rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        return Observation(text=f"Find the bed. Turn {self.turn} of 3.", images={"camera": image})

    def close(self):
        pass


def act(chat):
    """Sampled tokens of four episodes; a process runs as many as its rank leaves it."""
    plans = [EpisodeSpec(id=str(i), group=i, seed=i) for i in range(4)][: 4 - rank()]
    with unsharded(chat):
        episodes = collect(plans, [Room() for _ in plans], HFSampler(chat, Sampling(max_tokens=6, min_action_tokens=1)))
    return [np.concatenate([turn.decision.token_ids for turn in e.turns]) for e in episodes]


def act_and_learn(chat):
    shard_policy(chat, "shard")
    before = act(chat)
    learn(chat, make_batches(chat), steps=1)
    return before, act(chat)


@pytest.mark.slow
def test_a_sharded_policy_acts_like_a_whole_one_before_and_after_learning(chat, together):
    four, three = together(act_and_learn, chat)
    one = act(chat)
    learn(chat, make_batches(chat), steps=1)
    one = (one, act(chat))
    for mine, theirs, whole_one in zip(four, three, one):
        assert [tokens.tolist() for tokens in mine] == [tokens.tolist() for tokens in whole_one]
        assert [tokens.tolist() for tokens in theirs] == [tokens.tolist() for tokens in whole_one[:3]]
    assert any((a != b).any() for a, b in zip(one[0], one[1]) if len(a) == len(b))


def train_run(folder, source, kind, total):
    """A run to step `total` of which every step is saved; goes on with what is in the folder."""
    chat = load_chat(source)
    reference = CopyReference(chat)
    for policy in (chat, reference.chat):
        shard_policy(policy, kind)
    # a larger epsilon: the sign of a gradient that is only rounding is no weight of one process or another
    optimizer, guard = build_adamw({"policy": chat}, lr=1e-3, eps=1e-5), NonFiniteGuard()
    parts = {
        "weights": {"model": chat.model},
        "state": {"optimizer": optimizer, "guard": guard, "reference": reference},
    }
    batches = make_batches(chat, 3)
    with open_run(folder, {}, auto_resume=True, tensorboard=False) as run:
        run.restore(**parts)
        for step in run.steps(total):
            learn_once(chat, batches, optimizer, guard, reference)
            reference.update(chat, 0.9)
            run.save(step, **parts, metrics={})


@pytest.fixture(scope="module")
def unbroken(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    train_run(folder, tiny_folder, "data", 3)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("order", [(2, 1), (1, 2)])
def test_a_checkpoint_of_some_processes_resumes_on_others(tiny_folder, unbroken, together, tmp_path, order):
    for processes, total in zip(order, (2, 3)):
        if processes == 1:
            train_run(tmp_path, tiny_folder, "shard", total)
        else:
            together(train_run, tmp_path, tiny_folder, "shard", total)
    for step in (1, 2, 3):
        ours, theirs = (folder / f"checkpoint-{step}" for folder in (tmp_path, unbroken))
        one, other = (load_file(folder / "model.safetensors") for folder in (ours, theirs))
        assert_same_weights({k: v.numpy() for k, v in one.items()}, {k: v.numpy() for k, v in other.items()}, 1e-4)
        states = [torch.load(folder / "training_state.pt", weights_only=True)["items"] for folder in (ours, theirs)]
        for name, tensor in states[0]["reference"].items():
            assert (tensor - states[1]["reference"][name]).abs().max() < 1e-4
        moments = [state["optimizer"]["state"] for state in states]
        assert moments[0].keys() == moments[1].keys()
        for index, moment in moments[0].items():
            assert float(moment["step"]) == step
            assert (moment["exp_avg"] - moments[1][index]["exp_avg"]).abs().max() < 1e-4
    # a plain folder of the Hugging Face layout, whoever wrote it
    assert load_chat_weights(tmp_path / "checkpoint-3", tiny_folder)


def load_chat_weights(folder, base):
    fresh = load_chat(base)
    loaded = type(fresh.model).from_pretrained(folder)
    return any((a != b).any() for a, b in zip(loaded.parameters(), fresh.model.parameters()))


def learn_adapters(source):
    torch.manual_seed(0)
    chat = load_chat(source, lora=LoraSpec(rank=4))
    reference = AdapterReference(chat)
    shard_policy(chat, "shard")
    told, _ = learn(chat, make_batches(chat), reference)
    weights = {name: value for name, value in weights_of(chat).items() if "lora" in name}
    return told, weights, sum(isinstance(p, DTensor) for p in chat.parameters())


@pytest.mark.slow
def test_adapters_learn_beside_a_sharded_model(tiny_folder, together):
    (two, weights, held), _ = together(learn_adapters, tiny_folder)
    one, whole_weights, none_held = learn_adapters(tiny_folder)
    assert held > 10
    assert none_held == 0
    assert np.array(two) == pytest.approx(np.array(one), rel=1e-4, abs=1e-6)
    assert_same_weights(weights, whole_weights, 1e-4)


def learn_in_half_precision(chat):
    blocks = chat.causal.model.language_model.layers
    shard(chat, blocks, methods=("evaluate",), compute=torch.bfloat16)
    told, optimizer = learn(chat, make_batches(chat), steps=1)
    moments = next(iter(optimizer.state.values()))
    return told, str(moments["exp_avg"].dtype), str(next(chat.parameters()).dtype)


@pytest.mark.slow
def test_half_precision_computes_while_weights_and_moments_stay_whole_floats(chat, together):
    (told, moments, weights), _ = together(learn_in_half_precision, chat)
    one, _ = learn(chat, make_batches(chat), steps=1)
    assert (moments, weights) == ("torch.float32", "torch.float32")
    assert np.array(told) == pytest.approx(np.array(one), rel=0.05, abs=0.01)
    assert told != one
