"""What happens around the steps of a training, one file for each subject; `base` says when."""
