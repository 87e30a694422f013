"""Layers, models, and the check of their gradients."""
