import re
from pathlib import Path

import pytest

from cnn_course.engine import glossary

FOLDER = Path(__file__).parents[2] / "notebooks"
WARP = "[warp](README.md#warp)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a warp and a warp", f"a {WARP} and a warp"),
        ("Warps wait", "[Warps](README.md#warp) wait"),
        ("`warp` and warp", f"`warp` and {WARP}"),
        ("```python\nwarp = 1\n```\nwarp", f"```python\nwarp = 1\n```\n{WARP}"),
        ("## A warp\nwarp", f"## A warp\n{WARP}"),
        ("[the warp](x.md) warp", f"[the warp](x.md) {WARP}"),
        ("$warp$ and $$warp$$ warp", f"$warp$ and $$warp$$ {WARP}"),
        ('<img alt="warp"> warp', f'<img alt="warp"> {WARP}'),
        ("warped time-warp", "warped time-warp"),
        (f"a warp, a {WARP}", f"a {WARP}, a warp"),
    ],
)
def test_the_first_use_in_prose_is_linked(text, expected):
    assert glossary.link([text], ["warp"]) == [expected]


def test_only_the_first_cell_with_a_term_gets_its_link():
    cells = ["nothing", "a warp", "a warp"]
    assert glossary.link(cells, ["warp"]) == ["nothing", f"a {WARP}", "a warp"]
    assert glossary.link(glossary.link(cells, ["warp"]), ["warp"]) == glossary.link(cells, ["warp"])


def test_a_longer_term_goes_before_the_one_within_it():
    linked = glossary.link(
        ["shared memory is memory, a grid-stride loop no grid"], ["memory", "shared memory", "grid"]
    )
    assert linked == [
        "[shared memory](README.md#shared-memory) is [memory](README.md#memory), "
        "a grid-stride loop no [grid](README.md#grid)"
    ]


def test_there_is_no_glossary_in_an_empty_folder(tmp_path):
    assert glossary.terms(tmp_path) == []


def test_terms_stand_in_alphabetical_order_and_are_explained():
    text = (FOLDER / glossary.PAGE).read_text(encoding="utf-8")
    known = glossary.terms(FOLDER)
    assert known == sorted(known, key=str.lower)
    assert len(set(map(glossary.anchor, known))) == len(known)
    for body in re.split(r"^#### .+$", text, flags=re.MULTILINE)[1:]:
        assert len(body.split()) >= 6


def test_every_term_is_used_in_a_notebook():
    linked = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.ipynb"))
    unused = [term for term in glossary.terms(FOLDER) if f"(README.md#{glossary.anchor(term)})" not in linked]
    assert unused == []
