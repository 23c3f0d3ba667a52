"""A trained network -> events: model file, detector, decoding, tuning."""
