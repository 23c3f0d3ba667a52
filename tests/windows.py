"""The scores of a recording by the definition, for the tests of detectors."""

import numpy as np
import torch

from earmark.data.features import log_mel


def plain_scores(model, detector, wave):
    """The brute-force twin: convolutions over the whole, window by window, a loop over frames."""
    dtype = next(model.parameters()).dtype
    config = detector.bundle.model_config
    features = log_mel(wave, detector.bundle.feature_config).to(dtype)
    n_input = detector.bundle.feature_config.grid.count(detector.bundle.window)
    window = config.n_frames(n_input)  # in output frames, as all that follows
    hop = max(1, window // 2)
    n_frames, n_classes = config.n_frames(len(features)), len(detector.labels)
    starts = [0]
    while starts[-1] + window + hop <= n_frames:
        starts.append(starts[-1] + hop)
    if starts[-1] + window < n_frames:
        starts.append(n_frames - window)
    total, clip_scores = np.zeros((n_frames, n_classes + 1)), np.zeros((n_frames, n_classes))
    with torch.no_grad():
        encoded, _ = model.encode(features.unsqueeze(0))
    for start in starts:
        with torch.no_grad():
            prediction = model.classify(encoded[:, start : start + window])
        probs = prediction.frame_probs[0].double().numpy()
        for i, row in enumerate(probs):
            weight = min(i + 1, len(probs) - i)
            total[start + i] += [*(weight * row), weight]
        over = slice(start, start + len(probs))
        clip_scores[over] = np.maximum(clip_scores[over], prediction.clip_probs[0].numpy())
    return total[:, :-1] / total[:, -1:], clip_scores
