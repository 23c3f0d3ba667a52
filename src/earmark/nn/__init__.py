"""Log-mel -> frame and clip probabilities: layers, network, fused inference, loss."""
