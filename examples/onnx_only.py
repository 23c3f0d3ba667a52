"""Detect with onnxruntime alone: python onnx_only.py model.onnx recording.wav."""

import json
import sys

import numpy as np
import onnxruntime
import soundfile

onnxruntime.set_default_logger_severity(3)  # it would warn of the optional inputs
session = onnxruntime.InferenceSession(sys.argv[1])
about = session.get_modelmeta().custom_metadata_map
labels, decoding = json.loads(about["labels"]), json.loads(about["decoding"])
waveform, rate = soundfile.read(sys.argv[2], dtype="float32", always_2d=True)
assert rate == int(about["sample_rate"]), f"resample it to {about['sample_rate']} Hz"
frames, clips, _ = session.run(None, {"waveform": waveform.mean(1)[None]})
for label, of_frames, score in zip(labels, frames[0].T, clips[0], strict=True):
    active = np.flatnonzero(of_frames >= decoding[label]["threshold"])
    if score >= decoding[label]["clip_threshold"] and len(active):
        first, last = np.array([active[0], active[-1] + 1]) / float(about["frame_rate"])
        print(f"{label}\t{first:.2f}\t{last:.2f}\t{score:.2f}")
