"""Nothing -> the main job, on sounds made on the spot.

Until there is training, this shows what is there: a clip with known events, its log-mel, a forward
pass of an untrained network, and its frames pooled in three stages.
"""

from pathlib import Path

import torch

from earmark.audio import write_audio
from earmark.features import FeatureConfig, log_mel
from earmark.model import Model, ModelConfig
from earmark.plots import plot_hierarchy, save
from earmark.sounds import SOUNDS
from earmark.synth import SceneConfig, make_scene


def run_demo(out: Path, seed: int = 0) -> Path:
    """Make a scene, pool an untrained network's predictions in three stages, draw it all."""
    features = FeatureConfig()
    scene = make_scene(SceneConfig(rate=features.rate, n_events=(3, 3)), seed)
    out.mkdir(parents=True, exist_ok=True)
    write_audio(out / "scene.wav", scene.waveform, scene.rate)
    spectrum = log_mel(scene.waveform, features)
    torch.manual_seed(seed)
    labels = sorted(SOUNDS)
    # Left in training mode: an untrained batch norm has no statistics but those of this clip.
    model = Model(ModelConfig.preset("paper", n_classes=len(labels), dropout=0.0))
    with torch.no_grad():
        centred = (spectrum - spectrum.mean()) / spectrum.std()
        prediction = model(centred.unsqueeze(0))
        clip_probs, stages = model.pooling(
            prediction.frame_probs, prediction.hidden, return_stages=True
        )
    print(f"{out / 'scene.wav'}: {len(scene.waveform) / scene.rate:g} s with")
    for event in scene.events:
        print(f"  {event.onset:6.3f} to {event.offset:6.3f} s  {event.label}")
    shapes = " -> ".join(str(stage.probs.shape[1]) for stage in stages)
    ruler = model.config.frames(features.frames)
    print(f"log-mel {tuple(spectrum.shape)} at {float(features.frames.rate):g} Hz")
    print(f"frame probabilities at {float(ruler.rate):g} Hz, pooled {shapes}")
    label = scene.events[0].label
    score = clip_probs[0, labels.index(label)].item()
    print(f"clip probability of {label}: {score:.3f} (the network is not trained)")
    figure = plot_hierarchy(
        spectrum, features.frames, stages, ruler, label, labels.index(label), scene.events
    )
    return save(figure, out / "hierarchy.png")
