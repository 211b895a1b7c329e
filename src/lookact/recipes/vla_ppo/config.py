"""Settings and presets of vla-ppo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lookact.config import setting
from lookact.envs.tabletop.sizes import ACTION_SIZES, STATE_SIZE
from lookact.training.settings import PPO, Parallel


@dataclass(frozen=True)
class Vision:
    """DINOv2, and the glances that read its patches."""

    source: str = setting("tiny", help="'tiny', a folder, or a name such as facebook/dinov2-small")
    image_size: int = setting(64, help="pixels a side that frames are brought to; a multiple of the patch", least=8)
    patch: int = setting(8, help="pixels a side of the tiny encoder's patches; pretrained ones have 14", least=2)
    hidden: int = setting(64, help="width of the tiny encoder, a multiple of 32", least=32)
    layers: int = setting(2, help="layers of the tiny encoder", least=1)
    glances: int = setting(8, help="tokens that a camera's patches become", least=1)
    hold: Literal["frozen", "lora", "full"] = setting("full", help="what of the encoder learns; glances always do")
    lora_rank: int = setting(8, help="rank of the adapters", least=1)


@dataclass(frozen=True)
class Text:
    """BERT."""

    source: str = setting("tiny", help="'tiny', a folder, or a name such as google-bert/bert-base-uncased")
    hidden: int = setting(64, help="width of the tiny encoder, a multiple of 32", least=32)
    layers: int = setting(1, help="layers of the tiny encoder", least=1)
    length: int = setting(32, help="tokens an instruction is cut or padded to", least=4)
    hold: Literal["frozen", "lora", "full"] = setting("full", help="what of the encoder learns")
    lora_rank: int = setting(8, help="rank of the adapters", least=1)


@dataclass(frozen=True)
class Model:
    """What is fused, how, and how actions spread."""

    vision: Vision = Vision()
    text: Text = Text()
    width: int = setting(64, help="of the fusion transformer, a multiple of its heads", least=8)
    layers: int = setting(2, help="of the fusion transformer", least=1)
    heads: int = setting(4, help="of the fusion transformer", least=1)
    value_layers: int = setting(1, help="of the critic's own transformer", least=1)
    history: int = setting(5, help="last actions that are seen", least=0)
    chunk: int = setting(1, help="actions foretold at once; the first is taken, the others sharpen cloning", least=1)
    spread: Literal["fixed", "learned", "decay"] = setting("fixed", help="how the standard deviation of actions goes")
    std: float = setting(0.2, help="standard deviation of actions, at first or always", above=0, most=1)
    last_std: float = setting(0.05, help="where a decaying one ends", above=0, most=1)
    memory: int = setting(0, help="width of a GRU that carries on from step to step; 0: none", least=0)
    freeze: bool = setting(True, help="encoders stay as cloned while reward teaches: each frame is encoded once")
    device: str = setting("cpu", help="cpu, cuda or cuda:N")


@dataclass(frozen=True)
class World:
    """Which task, how it looks, and what is paid."""

    task: Literal["reach", "push", "pick_place"] = setting("pick_place", help="what the arm is asked to do")
    control: Literal["ee_delta", "delta_qpos"] = setting("ee_delta", help="actions move the tool, or the joints")
    cameras: tuple[Literal["head", "wrist"], ...] = setting(("head", "wrist"), help="who looks")
    image_size: int = setting(64, help="pixels a side, an even number", least=16)
    max_steps: int = setting(40, help="steps until an episode is cut off", least=1)
    reward: Literal["dense", "sparse"] = setting("dense", help="progress made in a step, or 1 where the task is done")
    distractors: int = setting(0, help="further objects, and as many further targets, on the table", least=0, most=3)
    appearance: bool = setting(True, help="colours and shapes differ from episode to episode")
    background: bool = setting(False, help="table, floor and wall differ")
    light: bool = setting(False, help="lights differ")
    camera: bool = setting(False, help="the head camera's place differs")
    clutter: bool = setting(False, help="things at the rim that are only seen")

    @property
    def state_size(self) -> int:
        return STATE_SIZE

    @property
    def action_size(self) -> int:
        return ACTION_SIZES[self.control]


@dataclass(frozen=True)
class Start:
    """What a policy learns before any reward."""

    looks: int = setting(0, help="looks at the table for the lessons in seeing; 0: the eyes can see", least=0)
    look_epochs: int = setting(8, help="passes over the looks", least=1)
    look_rows: int = setting(32, help="looks a learning step", least=1)
    look_lr: float = setting(2e-3, help="peak learning rate of the lessons in seeing", above=0)
    freeze_eyes: bool = setting(False, help="eyes stay as they are while cloning: each frame is encoded once")
    demos: int = setting(200, help="demonstrations recorded by the scripted expert", least=1)
    folder: str | None = setting(
        None, help="a LeRobot folder to clone instead, ours or another's with the same features", exists=True
    )
    noise: float = setting(0.2, help="deviation of what disturbs the expert, so that recovery is seen", least=0, most=1)
    epochs: int = setting(10, help="passes over the demonstrations", least=1)
    rows: int = setting(128, help="steps a learning step; with memory, demonstrations", least=1)
    lr: float = setting(1e-3, help="peak learning rate of cloning", above=0)
    swap: float = setting(1.0, help="share of steps shown another step's history, lest it be copied", least=0, most=1)
    save_every: int = setting(200, help="learning steps between checkpoints", least=1)
    workers: int = setting(0, help="processes that record and look; 0: one a core", least=0)


@dataclass(frozen=True)
class Learn:
    """How much is done, and how fast it is learnt from."""

    updates: int = setting(60, help="rounds of acting and learning", least=0)
    rows: int = setting(32, help="worlds side by side, over all processes", least=1)
    steps: int = setting(40, help="steps a world and update; at least as long as an episode", least=1)
    workers: int = setting(0, help="processes that simulate them, at least one for each half; 0: one a core", least=0)
    step_seconds: float = setting(30.0, help="a worker that takes longer over a step is started again", above=0)
    max_restarts: int = setting(20, help="restarts of a half's workers after which the run gives up", least=0)
    lr: float = setting(1e-4, help="peak learning rate of the policy", above=0)
    critic_lr: float = setting(1e-3, help="peak learning rate of the critic", above=0)
    schedule: Literal["constant", "linear", "cosine"] = setting("linear", help="how the rates fall")
    critic_warmup: int = setting(5, help="first updates in which only the critic learns", least=0)
    normalise_state: bool = setting(
        False, help="states are seen by their mean and deviation so far; else by those of the demonstrations"
    )
    scale_rewards: bool = setting(True, help="divide rewards by the deviation of their discounted sums so far")
    easiest: float = setting(
        1.0, help="share of the starts, the easiest ones, that learning begins with; 1: all", above=0, most=1
    )
    easy_updates: int = setting(20, help="updates over which that share grows to all", least=1)


@dataclass(frozen=True)
class Evaluation:
    """On scenes and starts that training never shows."""

    every: int = setting(10, help="updates between evaluations, each followed by a checkpoint", least=1)
    episodes: int = setting(50, help="episodes of each evaluation while training", least=1)
    final_episodes: int = setting(200, help="episodes before and after reinforcement; 0 leaves them out", least=0)
    outside: int = setting(100, help="of those along each way out of distribution; 0 leaves them out", least=0)
    rows: int = setting(20, help="episodes side by side", least=1)
    workers: int = setting(0, help="processes that simulate them; 0: one a core", least=0)
    films: int = setting(4, help="episodes of each kind that are kept as mp4", least=0)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    stage: Literal["bc", "ppo", "both"] = setting("both", help="clone, reinforce what --checkpoint holds, or both")
    checkpoint: str | None = setting(None, help="the policy that stage ppo begins with")
    render: bool = setting(False, help="film evaluations while training, into videos/")
    model: Model = Model()
    world: World = World()
    start: Start = Start()
    learn: Learn = Learn()
    ppo: PPO = PPO()
    evaluation: Evaluation = Evaluation()
    parallel: Parallel = Parallel()


PRESETS = {
    "debug": Config(
        model=Model(vision=Vision(hidden=32, layers=1, glances=4), text=Text(hidden=32), width=32, layers=1),
        world=World(max_steps=24),
        start=Start(looks=32, look_epochs=1, freeze_eyes=True, demos=4, epochs=1, save_every=10),
        learn=Learn(updates=2, rows=4, steps=24, critic_warmup=1),
        evaluation=Evaluation(every=1, episodes=2, final_episodes=4, outside=2, rows=4, films=1),
    ),
    "small": Config(
        # wide at first, or what an action is worth drowns in what else happens; narrow at last, when it must be exact
        model=Model(spread="decay", std=0.25, last_std=0.1),
        # few demonstrations on purpose: they leave reward something to add
        start=Start(looks=4000, look_epochs=8, freeze_eyes=True, demos=60, epochs=16, lr=2e-3),
        learn=Learn(updates=80, lr=1.5e-4, critic_warmup=3),
        ppo=PPO(gamma=0.98, max_kl=0.06),
        evaluation=Evaluation(every=40, final_episodes=100, outside=50, rows=20, films=2),
    ),
    "full": Config(
        model=Model(
            vision=Vision(source="facebook/dinov2-base", image_size=224, patch=14, glances=16, hold="lora"),
            text=Text(source="google-bert/bert-base-uncased", hold="frozen"),
            width=512,
            layers=6,
            heads=8,
            device="cuda",
            freeze=False,
        ),
        world=World(
            image_size=224, max_steps=60, distractors=2, background=True, light=True, camera=True, clutter=True
        ),
        start=Start(demos=1000, epochs=30, rows=256, lr=1e-4),
        evaluation=Evaluation(every=20, episodes=200, final_episodes=500, outside=200),
    ),
}
