"""Training of detectors from weakly labelled clips: settings, augmentation, loop, checkpoints."""
