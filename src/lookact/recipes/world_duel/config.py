"""Settings and presets of world-duel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lookact.config import setting
from lookact.envs.control.gym_control import ControlShapes, control_shapes
from lookact.envs.tabletop.sizes import ACTION_SIZES, STATE_SIZE
from lookact.envs.testbeds.memory_curtain import ACTION_SIZE as CURTAIN_ACTION
from lookact.envs.testbeds.memory_curtain import STATE_SIZE as CURTAIN_STATE
from lookact.errors import ConfigError
from lookact.models.vlm.sources import TINY
from lookact.training.settings import PPO

NAMES = ("tabletop", "two_arms", "maniskill", "memory_curtain", "noisy_tv")
TOOL, JOINTS = slice(8, 11), slice(0, 7)
"""Indices of the tool's position, and of the joints, in an arm's part of the state."""


@dataclass(frozen=True)
class EnvConfig:
    """The environment and its domain randomisation."""

    name: str = setting(
        "tabletop",
        help="tabletop (MuJoCo), two_arms (the same with a second arm), maniskill (SAPIEN), memory_curtain (memory "
        "testbed), noisy_tv (tabletop with a noisy TV), or another's: MODULE:NAME, FILE.py:NAME, or a Gymnasium id",
    )
    cameras: tuple[str, ...] = setting(
        (), help="of another's: its pictures for head and wrist; one serves both; none: all that it has, or its render"
    )
    instruction: str = setting("", help="what the model is told in another's task; empty: what that says")
    control: Literal["delta_qpos", "ee_delta"] = setting("delta_qpos", help="joint or end-effector position deltas")
    image_size: int = setting(32, help="pixels a side, a multiple of 8", least=16)
    steps_per_episode: int = setting(48, help="steps of each environment in an episode", least=2)
    num_envs: int = setting(16, help="parallel environments in each process", least=1)
    workers: int = setting(0, help="worker processes that step them; 0: this process", least=0)
    scene_reuse: int = setting(2, help="consecutive episodes in the same scene", least=1)
    distractors: int = setting(2, help="further objects on the table", least=0, most=3)
    appearance: bool = setting(True, help="randomise colours and shapes")
    background: bool = setting(True, help="randomise the textures of table, floor and wall")
    light: bool = setting(True, help="randomise lights")
    clutter: bool = setting(True, help="objects without collisions at the table's rim")
    camera: bool = setting(False, help="randomise the head camera's pose")

    @property
    def is_outside(self) -> bool:
        return self.name not in NAMES

    @property
    def shapes(self) -> ControlShapes:
        """Sizes and instructions; another's environment is tried out for them."""
        if self.is_outside:
            return control_shapes(self.name, self.cameras, instruction=self.instruction, known=NAMES)
        if self.name == "memory_curtain":
            return ControlShapes((), CURTAIN_STATE, CURTAIN_ACTION, ())
        return ControlShapes((), self.arms * STATE_SIZE, self.arms * ACTION_SIZES[self.control], ())

    @property
    def arms(self) -> int:
        return 2 if self.name == "two_arms" else 1

    @property
    def position(self) -> slice | list[int]:
        """Where a state holds the tools' positions; all of another's state counts."""
        return slice(None) if self.is_outside else self._of_each_arm(TOOL)

    @property
    def joints(self) -> slice | list[int]:
        """Where a state holds the joints."""
        return self._of_each_arm(JOINTS)

    def _of_each_arm(self, places: slice) -> slice | list[int]:
        if self.arms == 1:
            return places
        return [STATE_SIZE * arm + place for arm in range(self.arms) for place in range(places.start, places.stop)]


@dataclass(frozen=True)
class ModelConfig:
    """The network of the world model and of the explorer."""

    width: int = setting(64, help="hidden size of the experts", least=16)
    layers: int = setting(2, help="transformer blocks", least=1)
    heads: int = setting(2, help="attention heads", least=1)
    history: int = setting(4, help="frames of the image history, the present one included (n_obs_img_steps)", least=2)
    stride: int = setting(1, help="steps between them (obs_img_stride)", least=1)
    memory: int = setting(64, help="hidden size of the GRU memory; 0: none", least=0)
    memory_layers: int = setting(1, help="GRU layers", least=1)
    memory_backprop: bool = setting(True, help="gradients through the memory")
    ensemble_size: int = setting(3, help="codebook heads, whose disagreement is an uncertainty", least=1)
    action_chunk: int = setting(4, help="action-chunk length; only the first action is executed", least=1)
    action_head: Literal["gaussian", "flow"] = setting(
        "gaussian", help="a Gaussian, or flow matching whose denoising chain PPO scores"
    )
    foresight: bool = setting(
        False, help="the action expert attends to the next frame's tokens as the generation expert predicts them (F1)"
    )
    predicted_frames: int = setting(
        1, help="future frames that are predicted, and make up the foresight (n_pred_img_steps)", least=1
    )
    action_dim: int = setting(32, help="width that actions are padded to", least=8)
    state_dim: int = setting(32, help="width that states are padded to", least=11)
    text: str = setting(TINY, help="frozen text encoder: 'tiny', or a BERT by name or folder")
    vision: str = setting(
        "none", help="frozen vision encoder of the understanding expert: a SigLIP or DINOv2 by name or folder; or none"
    )
    pretrained: str | None = setting(
        None, help="folder of an F1, π0 or own checkpoint: what has the same part and shape is loaded", exists=True
    )
    lora_rank: int = setting(0, help="rank of LoRA adapters on the experts; 0: full fine-tuning", least=0)
    lora_alpha: int = setting(32, help="LoRA scale times rank", least=1)
    freeze_vision_encoder: bool = setting(False, help="freeze the vision projection")
    freeze_gen_expert: bool = setting(False, help="freeze the generation expert and the memory (always in the student)")
    train_act_expert_only: bool = setting(False, help="train the action expert and its critic only")
    train_gen_expert_only: bool = setting(False, help="train the teacher's generation expert and memory only")
    device: str = setting("cpu", help="cpu, cuda or cuda:N")


@dataclass(frozen=True)
class TokenizerConfig:
    """The VQ tokenizer of frames: a multi-scale VQ autoencoder, fitted on episodes of random actions."""

    codebook_size: int = setting(64, help="entries of each scale's codebook", least=2)
    latent_dim: int = setting(16, help="size of a codebook entry", least=1)
    width: int = setting(32, help="channels of the autoencoder", least=8)
    scales: tuple[int, ...] = setting((1, 2, 4), help="cells a side, coarse to fine; the last times 8 is image_size")
    gradient_steps: int = setting(1000, help="gradient steps", least=1)
    batch_size: int = setting(64, help="frames a gradient step", least=1)
    lr: float = setting(3e-3, help="peak learning rate", above=0)


@dataclass(frozen=True)
class Teacher:
    """World-model training by truncated BPTT: phase teacher, and the cloning of phase task."""

    episodes: int = setting(384, help="episodes to record, of random actions or (task_phase.bc) of the expert", least=1)
    iterations: int = setting(280, help="batches of episodes", least=0)
    batch_size: int = setting(8, help="episodes a batch, over all processes", least=2)
    bptt_length: int = setting(8, help="steps of a window of truncated BPTT", least=1)
    sequential_training: bool = setting(True, help="windows in order with the memory carried on; else random windows")
    lr: float = setting(2e-3, help="peak learning rate", above=0)
    warmup: int = setting(10, help="iterations of linear warm-up", least=0)
    action_loss_coef: float = setting(
        0.0, help="weight of cloning the actions taken, by flow matching or Gaussian NLL", least=0
    )


@dataclass(frozen=True)
class Rewards:
    """Intrinsic rewards of the explorer; each term is divided by its mean under random actions."""

    memory_weight: float = setting(0.1, help="weight of the divergence of the world model's memory", least=0)
    uncertainty_weight: float = setting(1.0, help="weight of the world model's uncertainty", least=0)
    novelty_weight: float = setting(0.2, help="weight of the k-NN novelty of the tool's position", least=0)
    uncertainty: Literal["entropy", "surprise", "disagreement", "learning_progress"] = setting(
        "surprise",
        help="token entropy, NLL of the next frame, ensemble disagreement, or how much the NLL fell since an older "
        "world model (the last two are robust to noise)",
    )
    progress_decay: float = setting(
        0.99,
        help="decay a batch of the moving average of weights that learning progress is measured against",
        above=0,
        below=1,
    )


@dataclass(frozen=True)
class Student:
    """Phase student: the explorer learns by PPO on intrinsic rewards, the world model frozen."""

    iterations: int = setting(100, help="rollouts of one episode in every environment, each followed by PPO", least=0)
    noise_correlation: float = setting(
        0.0,
        help="correlation of a step's exploration noise with the step before (coloured noise); 0: white",
        least=0,
        below=1,
    )
    std: float | None = setting(
        None, help="standard deviation of actions when the phase begins; none: the world model's own", above=0
    )
    lr: float = setting(2e-3, help="learning rate of the action and understanding experts", above=0)
    critic_lr: float = setting(5e-3, help="learning rate of the critic", above=0)
    ppo: PPO = PPO(gamma=0.95, epochs=4, minibatch=196, entropy_coef=0.001, max_kl=0.05)


@dataclass(frozen=True)
class Adversarial:
    """Phase adversarial: explorer and world model in turn."""

    iterations: int = setting(9, help="PPO of the explorer, then updates of the world model", least=0)
    episodes: int = setting(256, help="further episodes of random actions, beside the teacher's", least=0)
    world_model_updates: int = setting(8, help="batches of the world model a step", least=1)
    random_batch_size: int = setting(12, help="episodes of random actions in each, over all processes", least=1)
    explorer_batch_size: int = setting(4, help="episodes of the explorer in each, over all processes", least=1)
    lr: float = setting(5e-4, help="peak learning rate of the world model", above=0)
    behaviour_policy: Literal["explorer", "random", "scripted"] = setting(
        "explorer", help="who fills the replay buffer; random and scripted (bang-bang) actions are controls"
    )
    replay_size: int = setting(12, help="steps whose explorer episodes are kept in the replay buffer", least=1)


@dataclass(frozen=True)
class ImaginationConfig:
    """PPO on rollouts that the world model imagines, in phase task."""

    horizon: int = setting(0, help="steps of an imagined rollout; 0: none are imagined", least=0)
    starts: int = setting(256, help="real steps that imagined rollouts begin at, an iteration", least=1)
    gradient_steps: int = setting(40, help="gradient steps an iteration of the heads of reward, end, state", least=1)
    lr: float = setting(1e-3, help="learning rate of these heads", above=0)
    rollouts: int = setting(16, help="last real rollouts that they learn from", least=1)
    real_steps: bool = setting(True, help="the policy learns from real steps too; off: from imagined ones alone")


@dataclass(frozen=True)
class TaskPhase:
    """Phase task: the policy clones a scripted expert while the world model predicts it, then PPO by task reward."""

    task_name: Literal["reach", "push", "pick_place"] = setting(
        "reach", help="the tabletop's task; the curtain has its own"
    )
    action_noise: float = setting(
        0.2, help="standard deviation of noise executed on top of the expert's actions", least=0
    )
    bc: Teacher = Teacher(episodes=320, iterations=300, batch_size=16, bptt_length=16, action_loss_coef=1.0)
    iterations: int = setting(0, help="PPO iterations after cloning, one rollout each", least=0)
    critic_warmup: int = setting(0, help="of these, the first in which the critic alone learns", least=0)
    std: float | None = setting(
        None, help="standard deviation of actions that PPO begins with; none: the clone's own", above=0
    )
    lr: float = setting(3e-4, help="learning rate of PPO after cloning", above=0)
    ppo: PPO = PPO(minibatch=196, max_kl=0.05)
    imagination: ImaginationConfig = ImaginationConfig()
    episodes: int = setting(64, help="held-out starts that success is measured on", least=1)


@dataclass(frozen=True)
class Evaluation:
    """On scenes that are not trained on."""

    per_phase: int = setting(2, help="evaluations a phase, spread evenly, the last at its end", least=1)
    checkpoint_every: int = setting(0, help="steps between checkpoints; 0: one after each evaluation", least=0)
    sample_every: int = setting(0, help="steps between pictures in samples/; 0: one after each evaluation", least=0)
    video_every: int = setting(0, help="steps between videos; 0: one after each evaluation", least=0)
    episodes: int = setting(32, help="held-out episodes of random actions", least=1)
    keep: int = setting(8, help="checkpoints kept, the newest", least=1)
    horizon: int = setting(4, help="steps of the open-loop prediction", least=1)
    horizon_starts: int = setting(3, help="start points of it in an episode", least=1)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    phase: Literal["teacher", "student", "adversarial", "task", "all"] = setting(
        "all", help="training phase to run; all: teacher, student and adversarial"
    )
    teacher_path: str | None = setting(None, help="checkpoint whose world model to start from", exists=True)
    student_path: str | None = setting(None, help="checkpoint whose explorer to start from", exists=True)
    env: EnvConfig = EnvConfig()
    model: ModelConfig = ModelConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    teacher: Teacher = Teacher()
    rewards: Rewards = Rewards()
    student: Student = Student()
    adversarial: Adversarial = Adversarial()
    task_phase: TaskPhase = TaskPhase()
    evaluation: Evaluation = Evaluation()

    @property
    def fitting(self) -> Teacher:
        """How the world model is trained in this run."""
        return self.task_phase.bc if self.phase == "task" else self.teacher

    @property
    def head_camera_prob(self) -> float:
        """Probability that a training episode shows the head camera, which an explorer lacks."""
        return 1.0 if self.phase == "task" else 0.5


PRESETS = {
    "debug": Config(
        env=EnvConfig(num_envs=4, steps_per_episode=8, distractors=0),
        model=ModelConfig(width=32, layers=1, memory=32, ensemble_size=2),
        tokenizer=TokenizerConfig(codebook_size=16, latent_dim=8, width=8, gradient_steps=4, batch_size=16),
        teacher=Teacher(episodes=4, iterations=2, batch_size=4, bptt_length=4),
        student=Student(iterations=2, ppo=replace(Student().ppo, minibatch=18)),
        adversarial=Adversarial(
            iterations=2, episodes=4, world_model_updates=1, random_batch_size=4, explorer_batch_size=4
        ),
        task_phase=TaskPhase(
            bc=Teacher(episodes=4, iterations=2, batch_size=4, bptt_length=4, action_loss_coef=1.0),
            iterations=1,
            ppo=replace(TaskPhase().ppo, minibatch=18),
            episodes=4,
        ),
        evaluation=Evaluation(per_phase=1, episodes=4, horizon=2, horizon_starts=1),
    ),
    "small": Config(),
    "full": Config(
        env=EnvConfig(image_size=128, num_envs=16, workers=8, steps_per_episode=50, scene_reuse=50, appearance=False),
        model=ModelConfig(
            width=768, layers=12, heads=12, memory=2048, memory_layers=4, text="bert-base-uncased", device="cuda"
        ),
        tokenizer=TokenizerConfig(
            codebook_size=4096, latent_dim=32, width=128, scales=(1, 2, 4, 8, 16), gradient_steps=50_000, batch_size=256
        ),
        teacher=Teacher(episodes=10_000, iterations=20_000, batch_size=64, lr=1e-4, warmup=500),
        student=Student(iterations=5_000, lr=1e-4, critic_lr=2e-3),
        adversarial=Adversarial(
            iterations=10_000,
            episodes=10_000,
            world_model_updates=2,
            random_batch_size=96,
            explorer_batch_size=32,
            lr=5e-5,
            replay_size=64,
        ),
        evaluation=Evaluation(per_phase=100, episodes=128),
    ),
}


def planned(cfg: Config) -> dict[str, int]:
    """The phases of a run and their iterations, in order; phase task is cloning, then PPO."""
    if cfg.phase == "task":
        return {"clone": cfg.task_phase.bc.iterations, "reinforce": cfg.task_phase.iterations}
    teacher, student, adversarial = cfg.teacher.iterations, cfg.student.iterations, cfg.adversarial.iterations
    iterations = {"teacher": teacher, "student": student, "adversarial": adversarial}
    return iterations if cfg.phase == "all" else {cfg.phase: iterations[cfg.phase]}


def phase_at(cfg: Config, step: int) -> tuple[str, int]:
    """The phase that a run's step from 1 on belongs to, and its number there."""
    for phase, iterations in planned(cfg).items():
        if step <= iterations:
            return phase, step
        step -= iterations
    raise ConfigError(f"step {step} lies beyond the last phase: raise its iterations")


@dataclass(frozen=True)
class Due:
    """What follows a step."""

    evaluation: bool
    checkpoint: bool
    sample: bool
    video: bool

    @property
    def example(self) -> bool:
        """Whether an episode is drawn."""
        return self.sample or self.video


def due_after(cfg: Config, step: int) -> Due:
    """What follows a run's step: at the end of a phase everything, before it each thing at its own interval."""
    phase, number = phase_at(cfg, step)
    total, every = planned(cfg)[phase], cfg.evaluation
    evaluation = is_due(number, total, every.per_phase)

    def ends(interval: int) -> bool:
        return number == total or (number % interval == 0 if interval else evaluation)

    return Due(evaluation, *map(ends, (every.checkpoint_every, every.sample_every, every.video_every)))


def is_due(number: int, iterations: int, times: int) -> bool:
    """Whether one of a phase's `times` evaluations, spread evenly and the last at its end, follows step `number`."""
    return number * times // iterations > (number - 1) * times // iterations
