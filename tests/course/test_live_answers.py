"""What the book's pages store and show, without a browser: `answers.mjs` and `output.mjs`, run by Node."""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "book" / "page"
if shutil.which("node") is None:
    pytest.skip("node is not installed", allow_module_level=True)

FILES = {
    "start_here_count_kernel.py": '"""`count_kernel`, found right."""\n\nx = "ä→"\n',
    "a_b.py": "y = 1\n",
}


def node(code, folder):
    """Run a module with all of `answers.mjs` and `output.mjs`; return its log, read as JSON."""
    module = folder / "test.mjs"
    imports = [f'import * as {name} from "{(PAGE / name).as_uri()}.mjs";' for name in ("answers", "output")]
    module.write_text("\n".join([*imports, 'import fs from "node:fs";', code]), encoding="utf-8")
    done = subprocess.run(["node", module], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_the_workbook_is_packed_as_python_unpacks_it(tmp_path):
    path = tmp_path / "workbook.zip"
    node(
        f"fs.writeFileSync({json.dumps(str(path))}, answers.zipped({json.dumps(FILES)})); console.log(1);",
        tmp_path,
    )
    with zipfile.ZipFile(path) as packed:
        assert packed.testzip() is None
        assert {name: packed.read(name).decode() for name in packed.namelist()} == {
            f"workbook/{name}": text for name, text in FILES.items()
        }


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_workbook_that_others_have_packed_is_read(tmp_path, method):
    path = tmp_path / "packed.zip"
    with zipfile.ZipFile(path, "w", method) as packed:
        for name, text in {**FILES, "notes.txt": "no answer"}.items():
            packed.writestr(f"some/folder/{name}", text)
    read = f"new Uint8Array(fs.readFileSync({json.dumps(str(path))}))"
    assert node(f"console.log(JSON.stringify(await answers.unzipped({read})));", tmp_path) == FILES


def test_other_files_than_zip_raise(tmp_path):
    code = "answers.unzipped(new Uint8Array(40)).catch((e) => console.log(JSON.stringify(e.message)));"
    assert node(code, tmp_path) == "this is no zip file"


def test_a_workbook_file_gives_its_exercise_and_answer(tmp_path):
    topics = ["convolution_on_the_cpu", "convolution_on_the_gpu", "start_here"]
    code = f"""
    const topics = {json.dumps(topics)};
    const names = ["convolution_on_the_gpu_conv2d_kernel.py", "start_here_count_kernel.py", "other_x.py"];
    console.log(JSON.stringify([
      names.map((name) => answers.exerciseOf(name, topics)),
      answers.answerIn({json.dumps(FILES["start_here_count_kernel.py"])}),
    ]));"""
    exercises, answer = node(code, tmp_path)
    assert exercises == [["convolution_on_the_gpu", "conv2d_kernel"], ["start_here", "count_kernel"], None]
    assert answer == 'x = "ä→"'


def test_answers_are_stored_and_removed_and_a_failing_store_does_no_harm(tmp_path):
    code = """
    class Store {
      getItem(k) { return this[k] ?? null }
      setItem(k, v) { this[k] = v }
      removeItem(k) { delete this[k] }
    }
    const refuses = { getItem() { throw new Error() }, setItem() { throw new Error() } };
    const found = [];
    for (const store of [new Store(), refuses]) {
      const kept = new answers.Answers(store);
      kept.set("00", "a-stub", "x = 1");
      found.push(kept.get("00", "a-stub"), kept.get("01", "a-stub"));
      kept.set("00", "a-stub", null);
      kept.addToWorkbook({ "a.py": "1" });
      found.push(kept.get("00", "a-stub"), kept.workbook());
    }
    console.log(JSON.stringify(found));"""
    assert node(code, tmp_path) == ["x = 1", None, None, {"a.py": "1"}, None, None, None, {}]


def test_the_colours_of_a_terminal_become_classes_and_markup_stays_text(tmp_path):
    code = r"""
    const element = (tag) => ({ tag, children: [], append(...parts) { this.children.push(...parts) } });
    const parent = { ...element("pre"), ownerDocument: { createElement: element } };
    output.addText(parent, "a\x1b[1;31m<b>\x1b[0m c\x1b[92md");
    const added = parent.children.map((each) => each.tag ? [each.className, each.textContent] : each);
    console.log(JSON.stringify(added));"""
    assert node(code, tmp_path) == ["a", ["live-red live-bold", "<b>"], " c", ["live-green", "d"]]
