"""From a log-mel to frame and clip probabilities.

layers   the layers, each with its shape arithmetic and its fused version
model    ModelConfig, and Model, the network
fused    FusedModel: the network for inference on recordings of any length
loss     binary cross entropy of clips and of frames
"""
