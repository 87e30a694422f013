"""The commands train, predict and doctor, on a few images."""

import dataclasses
import os

from PIL import Image

from cnn_numba import cli, load

os.chdir(os.environ["FOLDER"])
whole = load("mnist")
few = {
    name: getattr(whole, name)[:200]
    for name in ("train_images", "train_labels", "test_images", "test_labels")
}
cli.train.load = lambda *arguments: dataclasses.replace(whole, **few)
Image.fromarray(whole.test_images[0, 0]).save("seven.png")
for arguments in (["train", "--epochs", "1"], ["predict", "seven.png"], ["doctor"]):
    try:
        cli.main(arguments)
    except SystemExit as done:
        print("exit", done.code)
