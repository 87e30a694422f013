"""What happens around the steps of a training, one file a subject; `base` says when."""
