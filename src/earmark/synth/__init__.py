"""Soundscapes with known events from a seed, of procedural sounds or of recordings."""

from earmark.synth.scenes import Scene, SceneConfig, SceneSets, make_scene, write_scenes
from earmark.synth.soundbank import Soundbank
from earmark.synth.sounds import NOISES, SOUNDS

__all__ = [
    "NOISES",
    "SOUNDS",
    "Scene",
    "SceneConfig",
    "SceneSets",
    "Soundbank",
    "make_scene",
    "write_scenes",
]
