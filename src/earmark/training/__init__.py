"""Weakly labelled clips -> a trained detector: settings, augmentation, loop, checkpoints."""
