"""The presets `full`, with the model's size, the device and the amount of work made small, and nothing else."""

import zlib
from dataclasses import replace

from lookact.models.vla.encoders import TextSpec, open_bert, open_dinov2, tiny_bert, tiny_dinov2, train_wordpiece


def by_reply(episode):
    """A reward that differs from reply to reply: a model of noise earns nothing."""
    return zlib.crc32(episode.turns[0].decision.token_ids.tobytes()) % 5 / 5


def smaller(cfg, source):
    """`cfg` for a tiny model on a CPU: one step of a few short episodes, and evaluations around it."""
    few = {"groups": 2, "group_size": 2} if hasattr(cfg.learn, "groups") else {"episodes": 4, "minibatch_size": 2}
    cfg = replace(
        cfg,
        model=replace(cfg.model, source=str(source), device="cpu"),
        env=replace(cfg.env, max_turns=2),
        sampling=replace(cfg.sampling, max_tokens=12),
        sft=replace(cfg.sft, demonstrations=2, batch_size=1),
        learn=replace(cfg.learn, iterations=1, lr_warmup=0, lr_schedule="constant", **few),
        evaluation=replace(cfg.evaluation, every=1, episodes=2, final_episodes=2),
        reward_functions=("full_presets:by_reply",),
    )
    return replace(cfg, critic=replace(cfg.critic, warmup=0)) if hasattr(cfg, "critic") else cfg


def make_encoders(folder):
    """Folders of a tiny DINOv2 and a tiny BERT, laid out as those on the Hub."""
    tokenizer = train_wordpiece(["Put the red cube on the green target."], TextSpec())
    bert = tiny_bert(hidden=32, layers=1, vocabulary=len(tokenizer), length=32)
    open_bert("tiny", bert, 0).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    dino = tiny_dinov2(hidden=32, layers=1, image_size=224, patch=14)
    open_dinov2("tiny", dino, 0).save_pretrained(folder / "dino")
    return str(folder / "dino"), str(folder / "bert")


def smaller_vla(cfg, dino, bert):
    """Episodes and rollouts at a half of their steps, a demonstration, and iterations that train the actor too."""
    model = cfg.model
    half = replace(cfg.env, max_steps=cfg.env.max_steps // 2)
    return replace(
        cfg,
        model=replace(
            model,
            vision=replace(model.vision, source=dino),
            text=replace(model.text, source=bert),
            width=64,
            layers=1,
            device="cpu",
        ),
        env=half,
        bc=replace(cfg.bc, demos=1, epochs=1, batch_size=8, workers=1),
        learn=replace(
            cfg.learn, iterations=1, num_envs=2, rollout_steps=cfg.learn.rollout_steps // 2, critic_warmup=0, workers=2
        ),
        ppo=replace(cfg.ppo, epochs=1, minibatch=8),
        evaluation=replace(
            cfg.evaluation, every=1, episodes=1, final_episodes=1, ood_episodes=0, num_envs=1, workers=1, videos=1
        ),
    )


def smaller_pref(cfg, url):
    """Episodes of a few decisions: one at random, one of exploration, and feedback after each from then on."""
    return replace(
        cfg,
        env=replace(cfg.env, horizon=6),
        judge=replace(cfg.judge, client=replace(cfg.judge.client, url=url)),
        feedback=replace(cfg.feedback, total=12, pairs_per_round=6, every=1),
        reward_model=replace(cfg.reward_model, epochs=1),
        learn=replace(
            cfg.learn,
            episodes=3,
            random_episodes=1,
            unsupervised_episodes=1,
            batch_size=16,
            reset_gradient_steps=1,
            replay_capacity=24,
        ),
        evaluation=replace(cfg.evaluation, every=1, episodes=1, final_episodes=1),
        device="cpu",
    )


def smaller_duel(cfg, bert):
    """One step a phase on a few short episodes; frames, scales and tokens stay as they are."""
    return replace(
        cfg,
        env=replace(cfg.env, num_envs=1, workers=1, steps_per_episode=4),
        model=replace(cfg.model, width=48, layers=1, memory=16, text=bert, device="cpu"),
        tokenizer=replace(cfg.tokenizer, codebook_size=64, width=8, gradient_steps=1, batch_size=4),
        teacher=replace(cfg.teacher, episodes=2, iterations=1, batch_size=2, bptt_length=2, warmup=0),
        student=replace(cfg.student, iterations=1, ppo=replace(cfg.student.ppo, epochs=1, minibatch=4)),
        adversarial=replace(
            cfg.adversarial, iterations=1, episodes=2, world_model_updates=1, random_batch_size=2, explorer_batch_size=2
        ),
        evaluation=replace(cfg.evaluation, per_phase=1, episodes=2, horizon=2, horizon_starts=1),
    )
