"""Text: the course's as data, the batches that a network is trained on, and what a trained one writes."""
