import errno

import numpy as np
import pytest
from photos import KINDS, photograph
from PIL import Image, ImageDraw, ImageFile

from cnn_numba import load, load_model, prepare_digit
from cnn_numba.data.digits import as_text, find_digit, prepare_photo
from cnn_numba.pretrained import MNIST_CNN


def seven(size=(120, 160), paper=255, ink=0, width=12, shift=0):
    """Draw a 7 as a greyscale picture."""
    image = Image.new("L", size, paper)
    draw = ImageDraw.Draw(image)
    draw.line([(30 + shift, 40), (85 + shift, 40), (50 + shift, 125)], fill=ink, width=width, joint="curve")
    return image


def placed(digit):
    """Return height and width of the ink, and its centre of mass."""
    rows, columns = np.nonzero(digit[0])
    mass = digit[0].astype(float)
    centre = (mass.sum(1) @ np.arange(28) / mass.sum(), mass.sum(0) @ np.arange(28) / mass.sum())
    return np.ptp(rows) + 1, np.ptp(columns) + 1, centre


@pytest.fixture(scope="module")
def expected():
    return prepare_digit(seven())


def test_the_ink_fits_the_box_and_its_mass_the_centre(expected):
    assert expected.shape == (1, 28, 28)
    assert expected.dtype == np.uint8
    height, width, centre = placed(expected)
    # The rim that resizing leaves may stand one pixel out of the box on each side.
    assert height in (20, 21, 22)
    assert 10 <= width <= 16
    assert max(abs(length - 14) for length in centre) <= 0.55
    assert expected.max() == 255
    assert expected[0, 0, 0] == 0


def test_a_wide_digit_is_fitted_by_its_width():
    stroke = np.full((50, 200), 255, np.uint8)
    stroke[20:30, 20:180] = 0
    height, width, _ = placed(prepare_digit(stroke))
    assert (height, width) == (1, 20)


def test_prepared_mnist_stays_mnist():
    images = load("mnist").test_images[:300]
    change = [np.abs(prepare_digit(image[0])[0].astype(int) - image[0]).mean() for image in images]
    assert np.median(change) < 0.5
    assert np.percentile(change, 99) < 6


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda image: seven(paper=0, ink=255), id="inverted"),
        pytest.param(lambda image: seven(paper=230, ink=60), id="grey on grey"),
        pytest.param(lambda image: seven(shift=-18), id="off centre"),
        pytest.param(lambda image: image.convert("RGB"), id="RGB"),
        pytest.param(lambda image: image.convert("CMYK"), id="CMYK"),
        pytest.param(lambda image: image.convert("YCbCr"), id="YCbCr"),
        pytest.param(lambda image: image.convert("HSV"), id="HSV"),
        pytest.param(lambda image: image.convert("P"), id="palette"),
        pytest.param(lambda image: image.convert("1"), id="one bit"),
        pytest.param(lambda image: image.convert("LA"), id="LA"),
        pytest.param(lambda image: image.convert("RGBA"), id="opaque RGBA"),
        pytest.param(lambda image: image.convert("F"), id="float"),
        pytest.param(lambda image: image.convert("I"), id="32-bit"),
        pytest.param(lambda image: Image.fromarray(np.asarray(image).astype(np.uint16) * 257), id="16-bit"),
        pytest.param(lambda image: np.asarray(image), id="array"),
        pytest.param(lambda image: np.asarray(image) / 255, id="float array"),
        pytest.param(lambda image: np.asarray(image) > 128, id="bool array"),
        pytest.param(lambda image: np.asarray(image.convert("RGB")), id="RGB array"),
    ],
)
def test_every_mode_and_polarity_gives_the_same_digit(expected, change):
    digit = prepare_digit(change(seven()))
    assert np.abs(digit.astype(int) - expected).mean() < 2.5


@pytest.mark.parametrize(("ink", "hidden"), [((0, 0, 0), 0), ((255, 255, 255), 255), ((0, 0, 160), 255)])
def test_ink_on_nothing(expected, ink, hidden):
    """A transparent background may have any colour; it still counts as paper."""
    alpha = np.asarray(seven(paper=0, ink=255))
    picture = np.full((*alpha.shape, 4), hidden, np.uint8)
    picture[alpha > 0, :3] = ink
    picture[..., 3] = alpha
    assert np.abs(prepare_digit(Image.fromarray(picture)).astype(int) - expected).mean() < 2.5


def test_sixteen_bits_are_not_cut_off(expected):
    # All of the ink is in the low byte: a conversion to 8 bits would lose it.
    picture = np.where(np.asarray(seven()) < 128, 1000, 1200).astype(np.uint16)
    assert np.abs(prepare_digit(Image.fromarray(picture)).astype(int) - expected).mean() < 2.5


@pytest.mark.parametrize("mode", ["L", "RGB", "P"])
def test_a_large_picture_is_as_good_as_a_small_one(expected, mode):
    large = seven().resize((2400, 3200)).convert(mode)
    assert np.abs(prepare_digit(large).astype(int) - expected).mean() < 4


def test_noisy_paper_is_paper(expected):
    rng = np.random.default_rng(7)
    noisy = np.clip(np.asarray(seven(paper=220, ink=30)) + rng.normal(0, 6, (160, 120)), 0, 255)
    assert np.abs(prepare_digit(noisy.astype(np.uint8)).astype(int) - expected).mean() < 6


@pytest.mark.parametrize(
    "ramp", [np.arange(65536, dtype=np.uint16), np.linspace(0, 1, 65536, dtype=np.float32)]
)
def test_a_deep_grey_picture_keeps_its_shades_in_colour(ramp):
    picture = prepare_photo(Image.fromarray(ramp.reshape(256, 256)), (3, 32, 32))
    assert picture.mean() == pytest.approx(127, abs=2)
    assert picture.min() < 10 < 245 < picture.max()


def test_a_rotated_photo_is_turned_upright(expected, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # The camera lay on its side.
    seven().rotate(90, expand=True).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    assert np.abs(prepare_digit(tmp_path / "turned.jpg").astype(int) - expected).mean() < 4


def test_a_digit_that_touches_the_edge():
    array = np.asarray(seven())
    rows, columns = (np.flatnonzero((array < 128).any(axis=axis)) for axis in (1, 0))
    tight = array[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    assert np.abs(prepare_digit(tight).astype(int) - prepare_digit(array)).mean() < 6


@pytest.mark.parametrize("shape", [(1, 1), (28, 28), (3, 500)])
@pytest.mark.parametrize("value", [0, 128, 255])
def test_a_blank_picture_raises(shape, value):
    with pytest.raises(ValueError, match="there is no digit in the picture: it is blank"):
        prepare_digit(np.full(shape, value, np.uint8))


def test_a_wholly_transparent_picture_is_blank():
    with pytest.raises(ValueError, match="blank"):
        prepare_digit(Image.new("RGBA", (30, 30), (0, 0, 0, 0)))


@pytest.mark.parametrize("shape", [(2, 2), (1, 5), (9, 1)])
def test_tiny_pictures_do_not_crash(shape):
    picture = np.zeros(shape, np.uint8)
    picture.flat[picture.size // 2] = 255
    assert prepare_digit(picture).max() == 255


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 28, 28), np.uint8),
        np.zeros((0, 4)),
        np.zeros((4, 4, 3)),
        np.zeros(5),
        np.full((2, 2), "x"),
    ],
)
def test_arrays_that_are_no_pictures_raise(array):
    with pytest.raises(ValueError, match=rf"a picture must have shape .* got shape \({array.shape[0]}"):
        prepare_digit(array)


# Of equal or nearly equal brightness; on the right, the brightness of ink and paper.
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        pytest.param((255, 0, 0), (0, 130, 0), id="red on green, 76 on 76"),
        pytest.param((0, 130, 0), (255, 0, 0), id="green on red"),
        pytest.param((255, 105, 180), (124, 167, 124), id="pink on grey-green, 158 on 149"),
        pytest.param((0, 0, 255), (40, 24, 30), id="blue on brown, 29 on 29"),
        pytest.param((255, 255, 0), (255, 255, 255), id="yellow on white, 226 on 255"),
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda image: image, id="RGB"),
        pytest.param(lambda image: image.convert("RGBA"), id="RGBA"),
        pytest.param(lambda image: image.quantize(16), id="palette"),
    ],
)
def test_ink_may_differ_from_the_paper_in_colour_alone(expected, ink, paper, change):
    strokes = np.asarray(seven(paper=0, ink=255))[..., np.newaxis] / 255
    picture = np.round(paper + strokes * (np.array(ink) - paper)).astype(np.uint8)
    digit, doubts = find_digit(change(Image.fromarray(picture)))
    assert np.abs(digit.astype(int) - expected).mean() < 2.5
    assert doubts == []


def test_a_page_of_one_colour_is_blank_whatever_the_colour():
    with pytest.raises(ValueError, match="blank"):
        prepare_digit(np.full((60, 60, 3), (200, 30, 90), np.uint8))


# --- files that are large, or for other programs ----------------------------------------------------------


@pytest.fixture
def large():
    """A picture of 26 megapixels."""
    return seven().resize((4400, 5900), Image.Resampling.BICUBIC)


def test_a_large_jpeg_is_made_smaller_while_it_is_read(expected, large, tmp_path, monkeypatch):
    large.save(tmp_path / "large.jpg")
    read = []
    loaded = ImageFile.ImageFile.load
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: (read.append(self.size), loaded(self))[1])
    assert np.abs(prepare_digit(tmp_path / "large.jpg").astype(int) - expected).mean() < 4
    assert max(max(size) for size in read) <= 5900 / 4


def test_a_large_picture_that_cannot_be_reduced_raises(large, tmp_path):
    large.save(tmp_path / "large.png", compress_level=1)
    with pytest.raises(ValueError, match="has 4400 x 5900 pixels, more than 25 million: make it smaller"):
        prepare_digit(tmp_path / "large.png")


def test_a_picture_with_a_huge_header_raises_without_a_warning(tmp_path, recwarn):
    """A hundred megapixels in a file of a few bytes."""
    header = b"P5 10000 10000 255\n"
    (tmp_path / "huge.pgm").write_bytes(header + bytes(10))
    with pytest.raises(ValueError, match="has 10000 x 10000 pixels"):
        prepare_digit(tmp_path / "huge.pgm")
    assert not recwarn.list


def test_no_other_program_is_started(tmp_path, monkeypatch):
    """An EPS file is a program, which Ghostscript would run."""
    seven().convert("RGB").save(tmp_path / "seven.eps")
    monkeypatch.setattr("subprocess.check_call", lambda *arguments, **how: pytest.fail("Ghostscript"))
    with pytest.raises(ValueError, match=r"seven.eps: not a picture in a format that is read: PNG, JPEG, "):
        prepare_digit(tmp_path / "seven.eps")


@pytest.mark.parametrize("prepare", [prepare_digit, lambda path: prepare_photo(path, (1, 28, 28))])
def test_a_file_that_is_no_picture_is_named_in_one_sentence(prepare, tmp_path):
    path = tmp_path / "seven.png"
    seven().save(path)
    whole = path.read_bytes()
    for content, reason in (
        (b"", "not a picture in a format that is read: PNG, JPEG"),
        (b"no picture", "not a picture in a format that is read: PNG, JPEG"),
        (whole[:-60], "image file is truncated"),
        (whole[:45] + bytes(40) + whole[85:], ""),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"^{path}: {reason}"):
            prepare(path)
    with pytest.raises(FileNotFoundError, match=r"none\.png"):
        prepare(tmp_path / "none.png")
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        prepare(tmp_path)
    with pytest.raises(
        TypeError, match="image must be of type str or PathLike or ndarray or Image, got None"
    ):
        prepare(None)


def test_a_file_that_cannot_be_read_to_its_end_is_named(tmp_path, monkeypatch):
    def fail(image):
        raise OSError(errno.EIO, "Input/output error")

    seven().save(tmp_path / "seven.png")
    monkeypatch.setattr(ImageFile.ImageFile, "load", fail)
    with pytest.raises(OSError, match=r"Input/output error: '.*seven\.png'$"):
        prepare_digit(tmp_path / "seven.png")


def test_a_blank_picture_in_a_file_is_named(tmp_path):
    Image.new("L", (9, 9)).save(tmp_path / "blank.png")
    with pytest.raises(ValueError, match=r"blank.png: there is no digit in the picture"):
        prepare_digit(str(tmp_path / "blank.png"))


def test_the_first_picture_of_an_animation_is_read(expected, tmp_path):
    first, second = seven().convert("P"), Image.new("P", (120, 160))
    first.save(tmp_path / "seven.gif", save_all=True, append_images=[second])
    assert np.abs(prepare_digit(tmp_path / "seven.gif").astype(int) - expected).mean() < 2.5


def test_nan_pixels_do_not_spread():
    picture = np.asarray(seven()).astype(np.float32)
    picture[0, :5] = np.nan
    assert prepare_digit(picture).max() == 255


# --- photographs -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def right():
    """Return a function that counts how many of 40 pictures of digits the course's network reads right."""
    mnist, network = load("mnist"), load_model(MNIST_CNN, batch_size=1)

    def right(picture):
        indices = range(0, 1000, 25)
        digits = [prepare_digit(picture(mnist.test_images[index, 0], index)) for index in indices]
        answers = [
            network.predict(digit[np.newaxis].astype(np.float32) / 255)[0].argmax() for digit in digits
        ]
        return int(np.sum(answers == mnist.test_labels[indices]))

    return right


@pytest.mark.exhaustive_unless(lambda kind: kind in list(KINDS)[::3], "every third kind of photograph")
@pytest.mark.parametrize("kind", KINDS)
def test_a_photograph_is_read_in_any_light_and_surroundings(right, kind):
    # MNIST's own digits, cleanly enlarged: 40 of 40. Measured 39 or 40 here; with one brightness for all of
    # the paper 4 to 15, except for even light and the blackboard.
    assert right(lambda digit, seed: photograph(digit, kind, seed)) >= 38


def enlarged(digit):
    image = Image.fromarray(digit)
    return np.asarray(image.resize((10 * image.width, 10 * image.height), Image.Resampling.BICUBIC))


def cut_out(digit):
    rows, columns = (np.flatnonzero(digit.max(axis) > 25) for axis in (1, 0))
    return digit[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@pytest.mark.parametrize(
    "picture",
    [
        pytest.param(enlarged, id="enlarged"),
        pytest.param(lambda digit: 255 - enlarged(digit), id="dark on light"),
        pytest.param(cut_out, id="cut out closely"),
        pytest.param(lambda digit: 255 - enlarged(cut_out(digit)), id="large and cut out closely"),
        pytest.param(lambda digit: 255 - np.pad(enlarged(digit), ((30, 500), (400, 30))), id="wide page"),
    ],
)
def test_clean_pictures_are_read_as_well_as_before(right, picture):
    assert right(lambda digit, seed: picture(digit)) >= 39


def on_paper(*marks):
    """Return a 7 on paper, and its doubts, with lines drawn around it."""
    image = seven()
    for points, width in marks:
        ImageDraw.Draw(image).line(points, fill=30, width=width)
    return find_digit(image)


BOX = [(8, 8), (112, 8), (112, 152), (8, 152), (8, 8)]


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param((BOX, 5), id="a box"),
        pytest.param(([(0, 0), (0, 160)], 30), id="a table's edge"),
        pytest.param(([(0, 143), (120, 143)], 3), id="a ruled line"),
        pytest.param(([(115, 5), (112, 20)], 4), id="a speck"),
    ],
)
def test_marks_around_the_digit_are_left_out(expected, mark):
    digit, doubts = on_paper(mark)
    assert np.abs(digit.astype(int) - expected).mean() < 2.5
    assert doubts == []


def test_the_bar_of_a_seven_may_stand_apart(expected):
    image = seven()
    ImageDraw.Draw(image).line([(0, 60), (120, 60)], fill=255, width=6)
    digit, doubts = find_digit(image)
    assert np.abs(digit.astype(int) - expected).mean() < 12
    assert placed(digit)[0] in (20, 21, 22)
    assert doubts == []


@pytest.mark.parametrize(
    ("image", "doubt"),
    [
        (seven(shift=40), "the digit touches the picture's edge"),
        (seven().crop((0, 0, 120, 110)), "the digit touches the picture's edge"),
        (np.hstack([seven(), seven()]), "something else stands beside the digit"),
        (np.asarray(seven())[60:90].repeat(2, 1), "it is wider than digits are"),
    ],
    ids=["over the edge", "cut off", "two", "wide"],
)
def test_doubts_are_named(image, doubt):
    assert doubt in find_digit(image)[1]


@pytest.mark.parametrize("contrast", [0, 8])
def test_ink_that_drowns_in_the_noise_is_doubted(contrast, rng):
    noisy = 180 + rng.normal(0, 6, (160, 120)) - contrast * (np.asarray(seven()) < 128)
    assert "the ink hardly stands out from the paper" in find_digit(noisy)[1]


def test_a_picture_cut_out_closely_is_not_doubted():
    assert find_digit(cut_out(255 - np.asarray(seven())))[1] == []


def test_a_pattern_too_fine_to_be_strokes_is_no_digit():
    with pytest.raises(ValueError, match="blank"):
        prepare_digit(255 * (np.indices((640, 640)).sum(0) % 2).astype(np.uint8))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_picture_is_drawn_in_characters_its_encoding_has(encoding, expected):
    text = as_text(expected, encoding)
    assert [len(line) for line in text.splitlines()] == [28] * 14
    text.encode(encoding)
    assert ("█" in text) == (encoding == "utf-8")


def test_colours_are_drawn_by_their_mean():
    picture = np.zeros((3, 32, 32), np.uint8)
    picture[:, :, 16:] = np.array([255, 128, 0]).reshape(3, 1, 1)
    assert as_text(picture).splitlines() == [" " * 16 + "▒" * 16] * 16
