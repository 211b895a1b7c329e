"""Settings and presets of world-duel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lookact.config import setting
from lookact.envs.tabletop.sizes import ACTION_SIZES, STATE_SIZE
from lookact.envs.testbeds.memory_curtain import ACTION_SIZE as HIDDEN_ACTION
from lookact.envs.testbeds.memory_curtain import STATE_SIZE as HIDDEN_STATE
from lookact.models.vlm.sources import TINY
from lookact.training.settings import PPO


@dataclass(frozen=True)
class World:
    """Where the arm moves, and how it looks there."""

    env: Literal["tabletop", "maniskill", "hidden", "noisy_tv"] = setting(
        "tabletop", help="the table in MuJoCo or SAPIEN; a curtain that needs memory; the table with noise on one side"
    )
    control: Literal["delta_qpos", "ee_delta"] = setting("delta_qpos", help="actions move the joints, or the tool")
    image_size: int = setting(32, help="pixels a side, a multiple of 8", least=16)
    steps_per_episode: int = setting(48, help="steps of each environment in an episode", least=2)
    rows: int = setting(16, help="environments in each process", least=1)
    workers: int = setting(0, help="processes that they are spread over; 0: none but this one", least=0)
    scene_reuse: int = setting(2, help="episodes that look alike, one after the other", least=1)
    distractors: int = setting(2, help="further objects on the table", least=0, most=3)
    appearance: bool = setting(True, help="colours and shapes differ from scene to scene")
    background: bool = setting(True, help="table, floor and wall differ")
    light: bool = setting(True, help="lights differ")
    clutter: bool = setting(True, help="things at the rim that are only seen")
    camera: bool = setting(False, help="the head camera's place differs")

    @property
    def state_size(self) -> int:
        return HIDDEN_STATE if self.env == "hidden" else STATE_SIZE

    @property
    def action_size(self) -> int:
        return HIDDEN_ACTION if self.env == "hidden" else ACTION_SIZES[self.control]


@dataclass(frozen=True)
class Model:
    """The sizes of the world model, which is also the explorer's."""

    width: int = setting(64, help="of the experts' tokens", least=16)
    layers: int = setting(2, help="blocks of shared attention", least=1)
    heads: int = setting(2, help="of attention", least=1)
    history: int = setting(4, help="frames it is shown, the present one included (n_obs_img_steps)", least=2)
    stride: int = setting(1, help="steps between them (obs_img_stride)", least=1)
    memory: int = setting(64, help="width of the GRU memory; 0: none", least=0)
    memory_layers: int = setting(1, help="of the GRU", least=1)
    memory_backprop: bool = setting(True, help="learn through the memory")
    members: int = setting(3, help="heads that foresee apart and may disagree", least=1)
    chunk_size: int = setting(4, help="actions foretold at once; the first is taken", least=1)
    action_head: Literal["gaussian", "flow"] = setting("gaussian", help="flow matching has no exact log-prob for PPO")
    std: float = setting(0.5, help="the Gaussian's standard deviation at first", above=0)
    action_dim: int = setting(32, help="width that actions are padded to", least=8)
    state_dim: int = setting(32, help="width that states are padded to", least=11)
    text: str = setting(TINY, help="'tiny', or a BERT by name or folder; it is not trained")
    lora_rank: int = setting(0, help="0 trains the experts' own weights, more trains adapters instead", least=0)
    lora_alpha: int = setting(32, help="the adapters' scale times their rank", least=1)
    freeze_vision_encoder: bool = setting(False, help="what merges frames into tokens of understanding stands still")
    freeze_gen_expert: bool = setting(False, help="so do the generation expert and the memory (always in the student)")
    train_act_expert_only: bool = setting(False, help="nothing but the action expert and its critic learns")
    train_gen_expert_only: bool = setting(False, help="nothing but the generation expert and the memory of the teacher")
    device: str = setting("cpu", help="cpu, cuda or cuda:N")


@dataclass(frozen=True)
class Tokens:
    """How frames become tokens: a multi-scale VQ autoencoder, trained on what random actions show."""

    codes: int = setting(64, help="entries of each scale's codebook", least=2)
    latent: int = setting(16, help="features of a cell", least=1)
    width: int = setting(32, help="channels of the autoencoder", least=8)
    scales: tuple[int, ...] = setting((1, 2, 4), help="cells a side, coarse to fine; the last times 8 is the picture")
    steps: int = setting(1000, help="gradient steps", least=1)
    batch: int = setting(64, help="frames of each", least=1)
    lr: float = setting(3e-3, help="peak learning rate", above=0)


@dataclass(frozen=True)
class Teacher:
    """How the world model learns."""

    episodes: int = setting(384, help="recorded with random actions", least=1)
    steps: int = setting(280, help="batches of episodes", least=0)
    batch: int = setting(8, help="episodes of each, over all processes", least=2)
    bptt_length: int = setting(8, help="steps of a window: gradients reach back that far", least=1)
    sequential_training: bool = setting(True, help="windows in turn with memory carried on; else anywhere")
    lr: float = setting(2e-3, help="peak learning rate", above=0)
    warmup: int = setting(10, help="steps until the peak", least=0)
    weight_decay: float = setting(0.01, help="of matrices", least=0)
    clip_norm: float = setting(1.0, help="largest gradient norm", above=0)
    head_share: float = setting(0.5, help="share of episodes that show the head camera too", least=0, most=1)
    action_weight: float = setting(0.0, help="weight of foretelling the actions taken, by flow or Gaussian", least=0)


@dataclass(frozen=True)
class Rewards:
    """What the explorer is paid for, in units of what random actions earn."""

    memory_weight: float = setting(0.1, help="for how far a step moves the world model's memory", least=0)
    uncertainty_weight: float = setting(1.0, help="for the world model's uncertainty about the step's end", least=0)
    novelty_weight: float = setting(0.2, help="for leading the tool where few steps of the same batch do", least=0)
    uncertainty: Literal["entropy", "surprise", "disagreement"] = setting(
        "surprise",
        help="its tokens' entropy, the nats it erred by, or its members' disagreement, which noise can't buy",
    )


@dataclass(frozen=True)
class Student:
    """How the explorer learns."""

    steps: int = setting(100, help="episodes of every environment, each followed by PPO", least=0)
    lr: float = setting(2e-3, help="learning rate of the action expert and of what understands", above=0)
    critic_lr: float = setting(5e-3, help="learning rate of the critic", above=0)
    ppo: PPO = PPO(gamma=0.95, epochs=4, minibatch=196, entropy_coef=0.001, max_kl=0.05)


@dataclass(frozen=True)
class Adversarial:
    """How both learn from each other."""

    steps: int = setting(9, help="rounds: the explorer acts and learns, then the world model", least=0)
    episodes: int = setting(256, help="episodes of random actions recorded anew, beside the teacher's", least=0)
    world_updates: int = setting(8, help="batches of the world model a round", least=1)
    random_batch: int = setting(12, help="episodes of random actions in each, over all processes", least=1)
    explorer_batch: int = setting(4, help="episodes of the explorer's in each, over all processes", least=1)
    lr: float = setting(5e-4, help="peak learning rate of the world model", above=0)
    replay: int = setting(12, help="rounds whose episodes are kept", least=1)


@dataclass(frozen=True)
class Evaluation:
    """On scenes that training never shows."""

    times: int = setting(2, help="evaluations of each phase, each followed by a checkpoint", least=1)
    episodes: int = setting(32, help="held-out random episodes", least=1)
    keep: int = setting(8, help="checkpoints kept, the newest", least=1)
    ahead: int = setting(4, help="steps foreseen without seeing", least=1)
    starts: int = setting(3, help="places in an episode to foresee them from", least=1)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    phase: Literal["teacher", "student", "adversarial", "all"] = setting("all", help="which part of the duel to run")
    teacher_path: str | None = setting(None, help="checkpoint whose world model to start from", exists=True)
    student_path: str | None = setting(None, help="checkpoint whose explorer to start from", exists=True)
    world: World = World()
    model: Model = Model()
    tokens: Tokens = Tokens()
    teacher: Teacher = Teacher()
    rewards: Rewards = Rewards()
    student: Student = Student()
    adversarial: Adversarial = Adversarial()
    evaluation: Evaluation = Evaluation()


PRESETS = {
    "debug": Config(
        world=World(rows=4, steps_per_episode=8, distractors=0),
        model=Model(width=32, layers=1, memory=32, members=2),
        tokens=Tokens(codes=16, latent=8, width=8, steps=4, batch=16),
        teacher=Teacher(episodes=4, steps=2, batch=4, bptt_length=4),
        student=Student(steps=2, ppo=replace(Student().ppo, minibatch=18)),
        adversarial=Adversarial(steps=2, episodes=4, world_updates=1, random_batch=4, explorer_batch=4),
        evaluation=Evaluation(times=1, episodes=4, ahead=2, starts=1),
    ),
    "small": Config(),
    "full": Config(
        world=World(image_size=128, rows=16, workers=8, steps_per_episode=50, scene_reuse=50, appearance=False),
        model=Model(
            width=768, layers=12, heads=12, memory=2048, memory_layers=4, text="bert-base-uncased", device="cuda"
        ),
        tokens=Tokens(codes=4096, latent=32, width=128, scales=(1, 2, 4, 8, 16), steps=50_000, batch=256),
        teacher=Teacher(episodes=10_000, steps=20_000, batch=64, lr=1e-4, warmup=500),
        student=Student(steps=5_000, lr=1e-4, critic_lr=2e-3),
        adversarial=Adversarial(
            steps=10_000, episodes=10_000, world_updates=2, random_batch=96, explorer_batch=32, lr=5e-5, replay=64
        ),
        evaluation=Evaluation(times=100, episodes=128),
    ),
}
