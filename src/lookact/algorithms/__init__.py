"""What two recipes or more share: supervised phases, PPO over tokens and over steps, SAC, reward learning."""
