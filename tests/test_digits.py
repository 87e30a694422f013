import numpy as np
import pytest
from PIL import Image, ImageDraw

from cnn_numba import load, prepare_digit


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
    """A transparent background may hide any colour; it is paper all the same."""
    alpha = np.asarray(seven(paper=0, ink=255))
    picture = np.full((*alpha.shape, 4), hidden, np.uint8)
    picture[alpha > 0, :3] = ink
    picture[..., 3] = alpha
    assert np.abs(prepare_digit(Image.fromarray(picture)).astype(int) - expected).mean() < 2.5


def test_sixteen_bits_are_not_cut_off(expected):
    # All of the ink lies in the low byte: a conversion to 8 bits would see nothing.
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


def test_a_photo_that_was_turned_stands_upright(expected, tmp_path):
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
def test_a_blank_picture_is_refused(shape, value):
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
def test_arrays_that_are_no_pictures_are_refused(array):
    with pytest.raises(ValueError, match=rf"a picture must have shape .* got shape \({array.shape[0]}"):
        prepare_digit(array)


def test_nan_pixels_do_not_spread():
    picture = np.asarray(seven()).astype(np.float32)
    picture[0, :5] = np.nan
    assert prepare_digit(picture).max() == 255
