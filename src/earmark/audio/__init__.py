"""Audio files <-> waveforms: decoding, resampling, reading in blocks, writing."""
