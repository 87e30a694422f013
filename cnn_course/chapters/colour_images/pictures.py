"""Pictures of colour images and of the networks that read them, for notebook 21."""

import numpy as np

from cnn_course.chapters.colour_images import improvements, transfer
from cnn_course.engine import plots


def _show(ax, image, title=""):
    """Draw one image (3, H, W): bytes, or numbers from 0 to 1."""
    ax.imshow(np.moveaxis(image, 0, -1), interpolation="nearest")
    ax.set_title(title, fontsize=9, color=plots.INK)


def grid_picture(images, titles, caption, alt, columns=10) -> plots.Picture:
    """Draw images in rows, each under its title.

    Parameters
    ----------
    images : ndarray, shape (N, 3, H, W), uint8 or 0 .. 1
    titles : list of N str
    caption, alt : str
    columns : int
    """
    rows = -(-len(images) // columns)
    fig, axes = plots.figure(rows, columns, size=(7.2, 0.95 * rows), squeeze=False)
    for ax in axes.ravel():
        ax.set_axis_off()
    for ax, image, title in zip(axes.ravel(), images, titles, strict=False):
        _show(ax, image, title)
    return plots.picture(fig, caption, alt, colours=256)


def planes_picture(image) -> plots.Picture:
    """Draw an image, shape (3, H, W), and its three planes."""
    fig, axes = plots.figure(1, 4, size=(7.2, 2.0))
    _show(axes[0], image, "image")
    planes = {"plane 0: red": image[0], "plane 1: green": image[1], "plane 2: blue": image[2]}
    for ax, (name, plane) in zip(axes[1:], planes.items(), strict=True):
        plots.show_image(ax, plane, name, limits=(0, 255))
        ax.title.set_fontsize(9)
    for ax in axes:
        ax.set_axis_off()
    return plots.picture(
        fig,
        "An image, and its three colour planes.",
        "The image in colour, and beside it three grey ones: how much red, green and blue each pixel has. "
        "The shape is light against the ground in some of them, and barely visible in others.",
        colours=256,
    )


def improvements_picture() -> plots.Picture:
    """Draw the accuracy after each step of `improvements.STEPS`, from the record."""
    record = improvements.recorded()
    titles = [result["title"] for result in record["results"]]
    values = [100 * improvements.accuracy(result) for result in record["results"]]
    fig, ax = plots.figure(size=(7.2, 3.0))
    places = np.arange(len(titles))[::-1]
    ax.barh(places, values, color=plots.BLUE, height=0.65)
    for place, value in zip(places, values, strict=True):
        ax.text(value + 1, place, f"{value:.1f}%", va="center", fontsize=9, color=plots.INK)
    ax.set(xlim=(0, 110), xlabel="test accuracy on the made pictures, %")
    ax.set_yticks(places, titles, fontsize=9)
    seeds = [len(result["histories"]) for result in record["results"]]
    several = [row for row, count in enumerate(seeds, 1) if count > 1]
    most = f", rows {several[0]} to {several[-1]} the mean of {max(seeds)}" if several else ""
    summary = "; ".join(f"{title} {value:.1f}%" for title, value in zip(titles, values, strict=True))
    return plots.picture(
        fig,
        f"What each step adds: {record['epochs']} epochs of the made pictures, "
        f"{plots.counted(min(seeds), 'training run')} each{most}. Measured on {record['date']} by "
        "python -m cnn_course.chapters.colour_images.improvements.",
        f"A bar for each step, downwards: {summary}.",
    )


def overfitting_picture() -> plots.Picture:
    """Draw the accuracy on training and test images over the epochs, with and without augmentation."""
    results = {result["title"]: result for result in improvements.recorded()["results"]}
    shown = {"without": results["weight decay"], "with": results["random crops and flips"]}
    fig, axes = plots.figure(1, 2, size=(7.2, 2.6), sharey=True)
    summaries = []
    for ax, (name, result) in zip(axes, shown.items(), strict=True):
        for key, dash, label in (("train_accuracy", "--", "training"), ("test_accuracy", "-", "test")):
            curve = 100 * np.mean([[e[key] for e in history] for history in result["histories"]], axis=0)
            ax.plot(np.arange(1, len(curve) + 1), curve, dash, label=f"{label} images")
            summaries.append(f"{name} augmentation the {label} images end at {curve[-1]:.1f}%")
        ax.set(xlabel="epoch", ylim=(0, 104))
        ax.set_title(f"{name} crops and flips", fontsize=10, color=plots.INK)
    axes[0].set_ylabel("accuracy, %")
    plots.legend(axes[1], loc="lower right")
    return plots.picture(
        fig,
        "Accuracy on the training images, as the network sees them, and on the test images; from the same "
        "record.",
        f"Two panels with rising curves: {'; '.join(summaries)}.",
    )


def transfer_picture() -> plots.Picture:
    """Draw the accuracy of each way of learning from few images, for both tasks, from the record."""
    record = transfer.recorded()
    titles = {"other kinds": "other kinds of drawn shapes", "digits": "handwritten digits"}
    fig, axes = plots.figure(1, 2, size=(7.2, 3.0), sharey=True)
    summaries = []
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        for (way, shares), mark in zip(record["results"][name].items(), "osD", strict=True):
            percent = 100 * np.array(shares)
            least, middle, most = percent.min(axis=1), percent.mean(axis=1), percent.max(axis=1)
            ax.errorbar(
                *(record["sizes"], middle, [middle - least, most - middle]),
                **{"marker": mark, "markersize": 5, "capsize": 3, "label": way},
            )
            ends = ", ".join(f"{value:.0f}%" for value in middle)
            summaries.append(f"{title}, {way}: {ends}")
        ax.set(xscale="log", xlabel="images to learn from", ylim=(0, 100))
        ax.set_xticks(record["sizes"], record["sizes"])
        ax.minorticks_off()
        ax.set_title(title, fontsize=10, color=plots.INK)
    axes[0].set_ylabel("unseen images right, %")
    axes[1].legend(frameon=False, fontsize=8.5, labelcolor=plots.INK, loc="lower right")
    sizes = ", ".join(map(str, record["sizes"]))
    return plots.picture(
        fig,
        f"Images classified correctly after {record['steps']} steps: mean, least and most of "
        f"{len(shares[0])} seeds. Measured on {record['date']} by python -m "
        "cnn_course.chapters.colour_images.transfer.",
        f"Two panels with three rising lines each, over {sizes} images. {'; '.join(summaries)}.",
    )


def filters_picture(before, after, image, count=8) -> plots.Picture:
    """Draw the filters that training has changed most: before and after, with their maps of an image.

    Parameters
    ----------
    before, after : ndarray, shape (N, 3, K, K)
        The filters of a first layer.
    image : ndarray, shape (3, H, W)
        The network's input, from -1 to 1.
    count : int
    """
    flat = [np.reshape(weight, (len(weight), -1)) for weight in (before, after)]
    cosines = (flat[0] * flat[1]).sum(axis=1) / np.prod([np.linalg.norm(f, axis=1) for f in flat], axis=0)
    chosen = np.argsort(cosines)[:count]
    windows = np.lib.stride_tricks.sliding_window_view(image, before.shape[2:], axis=(1, 2))
    fig, axes = plots.figure(4, count + 1, size=(7.2, 3.8))
    for ax in axes[:, 0]:
        ax.set_axis_off()
    _show(axes[1, 0], 0.5 + 0.5 * image, "image")
    for column, k in zip(axes[:, 1:].T, chosen, strict=True):
        for row, weight in zip((0, 2), (before[k], after[k]), strict=True):
            _show(column[row], 0.5 + 0.5 * weight / np.abs(weight).max())
            response = np.einsum("chwij,cij->hw", windows, weight)
            limit = np.abs(response).max()
            plots.show_image(column[row + 1], response, cmap="RdBu_r", limits=(-limit, limit))
    for ax in axes[:, 1:].flat:
        ax.set(xticks=[], yticks=[])
    for ax, name in zip(axes[:, 1], ("before", "its map", "after", "its map"), strict=True):
        ax.set_ylabel(name, fontsize=9, color=plots.INK)
    least, most = cosines[chosen].min(), cosines[chosen].max()
    return plots.picture(
        fig,
        f"The {count} of {len(before)} filters that training has turned furthest: before and after, each "
        "above its map of one image. Grey and white are 0.",
        f"An image, and {count} columns. In each a filter of 3 x 3 pixels in random colours, and a map in "
        "which the ground is as strong as the shape. Below, the filter after training, with smoother "
        "colours, and a map with a pale ground, in which outlines in one direction stand out. The cosines "
        f"between before and after range from {least:.2f} to {most:.2f}.",
        colours=256,
    )


def mistakes_picture(images, labels, chances, names, count=10) -> plots.Picture:
    """Draw the wrong answers with the highest confidence.

    Parameters
    ----------
    images : ndarray, shape (N, 3, H, W), uint8
    labels : ndarray, shape (N,)
    chances : ndarray, shape (N, classes)
    names : sequence of str
    count : int
    """
    answers = chances.argmax(axis=1)
    wrong = np.flatnonzero(answers != labels)
    worst = wrong[np.argsort(chances[wrong].max(axis=1))[::-1]][:count]
    titles = [f"{names[labels[i]]},\nsays {names[answers[i]]}" for i in worst]
    fig, axes = plots.figure(2, count // 2, size=(7.2, 3.4))
    for ax in axes.ravel():
        ax.set_axis_off()
    for ax, i, title in zip(axes.ravel(), worst, titles, strict=False):
        _show(ax, images[i], title)
    summary = "; ".join(title.replace("\n", " ") for title in titles)
    return plots.picture(
        fig,
        "The worst mistakes: the right label, and the network's answer.",
        f"{plots.counted(len(worst), 'test image')} that the network classifies wrongly with high "
        f"confidence: {summary}.",
        colours=256,
    )


def confusion_picture(labels, answers, names) -> plots.Picture:
    """Draw the confusion matrix, in per cent of each kind's images."""
    matrix = np.zeros((len(names), len(names)))
    np.add.at(matrix, (labels, answers), 1)
    matrix *= 100 / matrix.sum(axis=1, keepdims=True)
    fig, ax = plots.figure(size=(5.2, 4.2))
    ax.imshow(matrix, cmap="Blues", vmin=0, vmax=100)
    for row, column in np.argwhere(matrix >= 0.5):
        value = matrix[row, column]
        ax.text(
            *(column, row, f"{value:.0f}"),
            ha="center",
            va="center",
            fontsize=8,
            color="white" if value > 50 else "black",
        )
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set(xlabel="what the network says", ylabel="what it is")
    off = np.where(np.eye(len(names), dtype=bool), 0, matrix)
    worst = [np.unravel_index(i, off.shape) for i in np.argsort(off, axis=None)[::-1][:3]]
    summary = ", ".join(f"{names[a]} taken for {names[b]} {off[a, b]:.0f}%" for a, b in worst if off[a, b])
    return plots.picture(
        fig,
        "The confusion matrix, in per cent of each row's images.",
        f"A table of ten rows and columns, dark along the diagonal. The most frequent mistakes: {summary}.",
    )
