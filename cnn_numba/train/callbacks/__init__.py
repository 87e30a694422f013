"""The callbacks around the steps of a training run; `base` lists the events."""
