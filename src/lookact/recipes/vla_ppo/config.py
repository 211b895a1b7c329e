"""Settings and presets of vla-ppo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lookact.config import setting
from lookact.envs.control.gym_control import ControlShapes, control_shapes, find_control
from lookact.envs.tabletop.sizes import ACTION_SIZES, STATE_SIZE
from lookact.training.settings import PPO, Parallel

if TYPE_CHECKING:
    from lookact.data.lerobot.action_space import ActionSpace

TASKS = ("reach", "push", "pick_place", "stack", "open_drawer", "close_drawer")
"""Those of the tabletop."""
CAMERAS, FPS = ("head", "wrist"), 10


@dataclass(frozen=True)
class Vision:
    """Vision encoder: DINOv2, and attention pooling of its patches by learned queries."""

    source: str = setting("tiny", help="'tiny', a folder, or a name such as facebook/dinov2-small")
    image_size: int = setting(64, help="pixels a side that frames are resized to; a multiple of the patch", least=8)
    patch: int = setting(8, help="pixels a side of the tiny encoder's patches; pretrained ones have 14", least=2)
    hidden: int = setting(64, help="width of the tiny encoder, a multiple of 32", least=32)
    layers: int = setting(2, help="layers of the tiny encoder", least=1)
    pool_queries: int = setting(8, help="attention-pooling queries a camera: its tokens in the fusion", least=1)
    finetune: Literal["frozen", "lora", "full"] = setting(
        "full", help="fine-tuning mode of the encoder; pooling queries are always trained"
    )
    lora_rank: int = setting(8, help="rank of the LoRA adapters", least=1)


@dataclass(frozen=True)
class Text:
    """Text encoder: BERT."""

    source: str = setting("tiny", help="'tiny', a folder, or a name such as google-bert/bert-base-uncased")
    hidden: int = setting(64, help="width of the tiny encoder, a multiple of 32", least=32)
    layers: int = setting(1, help="layers of the tiny encoder", least=1)
    length: int = setting(32, help="tokens an instruction is cut or padded to", least=4)
    finetune: Literal["frozen", "lora", "full"] = setting("full", help="fine-tuning mode of the encoder")
    lora_rank: int = setting(8, help="rank of the LoRA adapters", least=1)


@dataclass(frozen=True)
class Model:
    """The policy: encoders, fusion transformer, action head, critic."""

    vision: Vision = Vision()
    text: Text = Text()
    width: int = setting(64, help="width of the fusion transformer, a multiple of its heads", least=8)
    layers: int = setting(2, help="layers of the fusion transformer", least=1)
    heads: int = setting(4, help="attention heads of the fusion transformer", least=1)
    value_layers: int = setting(1, help="layers of the critic's own transformer", least=1)
    history: int = setting(5, help="action-history length: last actions in the observation", least=0)
    asymmetric_critic: bool = setting(
        False, help="critic on the simulator's true state, which the policy never sees; tabletop only"
    )
    action_chunk: int = setting(
        1, help="action-chunk length; only the first action is executed, the rest are an auxiliary BC target", least=1
    )
    action_head: Literal["gaussian", "flow"] = setting(
        "gaussian", help="a Gaussian, or flow matching whose denoising chain PPO scores"
    )
    flow_steps: int = setting(4, help="Euler steps of a flow head from noise to an action", least=1)
    flow_noise: Literal["learned", "sde"] = setting(
        "learned",
        help="noise of those steps: a network's (Flow-Noise, ReinFlow), or Flow-SDE's with `std` as its level",
    )
    std_schedule: Literal["fixed", "learned", "decay"] = setting("fixed", help="standard deviation of actions")
    std: float = setting(0.2, help="standard deviation of actions, initial or fixed", above=0, most=1)
    final_std: float = setting(0.05, help="where a decaying standard deviation ends", above=0, most=1)
    memory: int = setting(0, help="hidden size of a GRU over steps; 0: none", least=0)
    freeze_encoders: bool = setting(True, help="freeze both encoders during PPO: each frame is encoded once")
    device: str = setting("cpu", help="cpu, cuda or cuda:N")


@dataclass(frozen=True)
class EnvConfig:
    """The environment: task, action space, cameras, reward, domain randomisation."""

    task: str = setting(
        "pick_place",
        help="reach, push, pick_place, stack, open_drawer or close_drawer, or another's: MODULE:NAME, FILE.py:NAME, "
        "SUITE:NAME, or a Gymnasium id",
    )
    control: Literal["ee_delta", "ee_delta_yaw", "delta_qpos"] = setting(
        "ee_delta", help="action space: end-effector deltas, those and the hand's yaw, or joint deltas"
    )
    cameras: tuple[str, ...] = setting(CAMERAS, help="head and wrist, or pictures of another's observation")
    instruction: str = setting("", help="what the policy is told in another's task; empty: what that says")
    image_size: int = setting(64, help="pixels a side of a frame, an even number", least=16)
    max_steps: int = setting(40, help="steps after which an episode is truncated", least=1)
    reward_mode: Literal["dense", "sparse"] = setting("dense", help="progress of the task in a step, or 1 on success")
    success_bonus: float = setting(0.0, help="reward added once, when the task is done; tabletop only", least=0)
    distractors: int = setting(0, help="distractor objects, and as many distractor targets", least=0, most=3)
    appearance: bool = setting(True, help="randomise colours and shapes")
    background: bool = setting(False, help="randomise textures of table, floor and wall")
    light: bool = setting(False, help="randomise lights")
    camera: bool = setting(False, help="randomise the head camera's pose")
    clutter: bool = setting(False, help="add visual clutter at the rim of the table")
    object_kind: Literal["plain", "long"] = setting(
        "plain", help="cubes, cylinders and bricks, or bars, sticks and planks, which a hand must turn to hold"
    )
    sizes: bool = setting(False, help="randomise sizes of objects, 0.85 to 1.15")
    action_noise: float = setting(0.0, help="std of noise on executed actions", least=0, most=1)
    latency: int = setting(0, help="steps between an action and its execution", least=0, most=5)

    @property
    def is_tabletop(self) -> bool:
        return self.task in TASKS

    @property
    def has_expert(self) -> bool:
        """Whether someone demonstrates: the tabletop's scripted expert, or a task's own."""
        return self.is_tabletop or find_control(self.task, TASKS).expert is not None

    @property
    def action_space(self) -> ActionSpace | None:
        """What actions mean on the tabletop; nobody tells it of another's environment."""
        from lookact.data.lerobot.action_space import ActionSpace

        if not self.is_tabletop:
            return None
        if self.control == "delta_qpos":
            return ActionSpace("delta_qpos", "none", "open_positive", FPS)
        return ActionSpace("ee_delta", "yaw" if self.control == "ee_delta_yaw" else "none", "open_positive", FPS)

    @property
    def rate(self) -> int:
        """Decisions a second: frames of demonstrations and videos."""
        return self.shapes.rate

    @property
    def shapes(self) -> ControlShapes:
        """Cameras, sizes and instructions; another's environment is tried out for them."""
        if self.is_tabletop:
            return ControlShapes(self.cameras, STATE_SIZE, ACTION_SIZES[self.control], (), FPS)
        own = () if self.cameras == CAMERAS else self.cameras
        return control_shapes(self.task, own, instruction=self.instruction, known=TASKS)


@dataclass(frozen=True)
class BC:
    """Vision pretraining, demonstrations and behaviour cloning."""

    pretrain_images: int = setting(
        0, help="images for keypoint pretraining of the vision encoder; 0: it is pretrained", least=0
    )
    pretrain_epochs: int = setting(8, help="epochs of vision pretraining", least=1)
    pretrain_batch_size: int = setting(32, help="images a gradient step of vision pretraining", least=1)
    pretrain_lr: float = setting(2e-3, help="peak learning rate of vision pretraining", above=0)
    word_dropout: float = setting(
        0.3,
        help="word dropout in vision pretraining: mean probability of hiding a word that names no object or target",
        least=0,
        most=0.5,
    )
    freeze_encoders: bool = setting(False, help="freeze both encoders during BC: each frame is encoded once")
    demos: int = setting(200, help="demonstrations recorded by the scripted expert", least=1)
    dataset: str | None = setting(
        None, help="a LeRobot dataset folder to clone instead, with the environment's features", exists=True
    )
    rename: tuple[str, ...] = setting((), help="cameras of the dataset under the environment's names, as top=head")
    action_bounds: Literal["recorded", "minmax", "quantile"] = setting(
        "recorded", help="the dataset's actions as they are, in -1..1, or normalised by its statistics (q01 to q99)"
    )
    action_noise: float = setting(
        0.2,
        help="std of noise on the expert's executed actions (shows recovery) and on action histories",
        least=0,
        most=1,
    )
    epochs: int = setting(10, help="epochs of BC", least=1)
    batch_size: int = setting(128, help="steps a gradient step of BC; with memory, demonstrations", least=1)
    micro_batch_size: int | None = setting(
        None, help="of those, how many a process learns from at once; gradients are summed. none: all", least=1
    )
    lr: float = setting(1e-3, help="peak learning rate of BC", above=0)
    history_shuffle_prob: float = setting(
        1.0, help="probability of shuffling the action history during BC (avoids copycat policies)", least=0, most=1
    )
    hindsight_episodes: int = setting(
        0,
        help="hindsight experience replay: so many of the clone's own episodes, failed pushes relabelled with where "
        "the object ended, are cloned too; 0: none",
        least=0,
    )
    save_every: int = setting(200, help="gradient steps between checkpoints", least=1)
    workers: int = setting(0, help="processes that record and render; 0: one a core", least=0)


@dataclass(frozen=True)
class Learn:
    """PPO's rollouts and rates; its losses are under `ppo`."""

    iterations: int = setting(60, help="PPO iterations: a rollout and its gradient steps", least=0)
    num_envs: int = setting(32, help="parallel environments, over all processes", least=1)
    rollout_steps: int = setting(40, help="steps of an environment a rollout; at least `env.max_steps`", least=1)
    workers: int = setting(0, help="simulation processes, at least one for each half; 0: one a core", least=0)
    step_timeout_s: float = setting(30.0, help="seconds for a step after which a worker is restarted", above=0)
    start_timeout_s: float = setting(
        600.0, help="seconds for a worker to import its packages, make its environments and reset them", above=0
    )
    max_restarts: int = setting(20, help="restarts of a half's workers after which the run fails", least=0)
    lr: float = setting(1e-4, help="peak learning rate of the policy", above=0)
    critic_lr: float = setting(1e-3, help="peak learning rate of the critic", above=0)
    lr_schedule: Literal["constant", "linear", "cosine"] = setting("linear", help="learning-rate schedule")
    critic_warmup: int = setting(5, help="first iterations, in which only the critic is trained", least=0)
    normalise_state: bool = setting(
        False, help="normalise states by running mean and std; else by those of the demonstrations"
    )
    scale_rewards: bool = setting(True, help="divide rewards by the running std of discounted returns")
    failure_starts: float = setting(
        0.0, help="probability of beginning an episode where one lately failed", least=0, below=1
    )
    curiosity: float = setting(
        0.0, help="weight of a state's novelty (random network distillation) as an added reward; 0: none", least=0
    )
    advantage: Literal["gae", "rloo", "grpo"] = setting(
        "gae", help="GAE of the critic, or returns compared within groups of episodes from one start, without a critic"
    )
    group_size: int = setting(8, help="episodes from each start for rloo and grpo; divides `learn.num_envs`", least=2)
    bootstrap_timeouts: bool = setting(
        True,
        help="GAE bootstraps an episode that runs out of steps by the critic's value; else it ends there, as a failure",
    )
    curriculum_start_fraction: float = setting(
        1.0, help="curriculum: the easiest fraction of starts that PPO begins with; 1: all", above=0, most=1
    )
    curriculum_iterations: int = setting(20, help="iterations over which that fraction grows to 1", least=1)

    @property
    def groups(self) -> tuple[Literal["rloo", "grpo"], int] | None:
        """How episodes are compared, and how many; None: by the critic."""
        return None if self.advantage == "gae" else (self.advantage, self.group_size)


@dataclass(frozen=True)
class Evaluation:
    """On scenes and starts that training never shows."""

    every: int = setting(10, help="iterations between evaluations, each followed by a checkpoint", least=1)
    episodes: int = setting(50, help="episodes of an evaluation during training", least=1)
    final_episodes: int = setting(200, help="episodes before and after PPO; 0: none", least=0)
    ood_episodes: int = setting(100, help="of those for each out-of-distribution shift; 0: none", least=0)
    instruction_episodes: int = setting(
        100, help="of those with an empty, and with a wrong instruction; 0: none", least=0
    )
    num_envs: int = setting(20, help="parallel environments", least=1)
    workers: int = setting(0, help="simulation processes; 0: one a core", least=0)
    videos: int = setting(4, help="episodes of each kind kept as mp4", least=0)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    stage: Literal["bc", "ppo", "both"] = setting("both", help="behaviour cloning, PPO from --checkpoint, or both")
    checkpoint: str | None = setting(None, help="checkpoint that stage ppo starts from")
    render: bool = setting(False, help="videos of evaluations during training, into videos/")
    model: Model = Model()
    env: EnvConfig = EnvConfig()
    bc: BC = BC()
    learn: Learn = Learn()
    ppo: PPO = PPO()
    evaluation: Evaluation = Evaluation()
    parallel: Parallel = Parallel()

    @property
    def true_state(self) -> bool:
        """Whether the critic is given the simulator's true state, which the tabletop alone tells."""
        return self.model.asymmetric_critic and self.env.is_tabletop


PRESETS = {
    "debug": Config(
        model=Model(
            vision=Vision(hidden=32, layers=1, pool_queries=4),
            text=Text(hidden=32),
            width=32,
            layers=1,
            asymmetric_critic=True,
        ),
        env=EnvConfig(max_steps=24, distractors=1, background=True, light=True, camera=True),
        bc=BC(pretrain_images=32, pretrain_epochs=1, freeze_encoders=True, demos=4, epochs=1, save_every=10),
        learn=Learn(iterations=2, num_envs=4, rollout_steps=24, critic_warmup=1, failure_starts=0.5),
        evaluation=Evaluation(
            every=1, episodes=2, final_episodes=4, ood_episodes=0, instruction_episodes=2, num_envs=4, videos=1
        ),
    ),
    "small": Config(
        # a wide std first, for a clear advantage signal; a narrow one at the end, for precision
        model=Model(std_schedule="decay", std=0.15, final_std=0.04, asymmetric_critic=True),
        env=EnvConfig(success_bonus=1.0, distractors=1, background=True, light=True, camera=True),
        bc=BC(pretrain_images=8000, pretrain_epochs=9, freeze_encoders=True, demos=1200, epochs=16, lr=2e-3),
        learn=Learn(iterations=40, lr=1e-4, critic_warmup=3, failure_starts=0.5),
        ppo=PPO(gamma=0.98, max_kl=0.06),
        evaluation=Evaluation(every=40, final_episodes=100, videos=2),
    ),
    "full": Config(
        model=Model(
            vision=Vision(source="facebook/dinov2-base", image_size=224, patch=14, pool_queries=16, finetune="lora"),
            text=Text(source="google-bert/bert-base-uncased", finetune="frozen"),
            width=512,
            layers=6,
            heads=8,
            device="cuda",
            freeze_encoders=False,
        ),
        env=EnvConfig(
            image_size=224, max_steps=60, distractors=2, background=True, light=True, camera=True, clutter=True
        ),
        bc=BC(demos=1000, epochs=30, batch_size=256, micro_batch_size=32, lr=1e-4),
        learn=Learn(rollout_steps=60),
        # a whole minibatch, like a whole batch of cloning, would keep 57 GB of activations (`lookact plan`)
        ppo=PPO(micro_batch_size=32),
        evaluation=Evaluation(every=20, episodes=200, final_episodes=500, ood_episodes=200),
    ),
}
