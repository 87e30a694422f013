"""What happens around the steps of a training run, one file for each subject; `base` says when."""
