"""Audio files -> waveforms: decoding, resampling, blocks of constant memory."""
