"""Compare modelled times with published ones: ``cnn-numba bench modelled`` calls this.

It runs in a separate process, as its kernels need the emulated GPU even if there is a real one.
"""

import argparse
import json
import sys

import gpuless


def main() -> None:
    """Predict the rows, print them and a summary; write the record and the page."""
    parser = argparse.ArgumentParser(prog="cnn-numba bench modelled", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="what GPU, family and name of a row must have")
    parser.add_argument("--record", action="store_true", help="write record and page, for all rows")
    parser.add_argument("--on", metavar="GPU", help="print modelled times on another GPU, as JSON")
    chosen = parser.parse_args()
    if chosen.record and chosen.words:
        parser.error("the record has all rows: leave --record or the words out")
    gpuless.select()  # before `rows` imports numba.cuda
    from benchmarks.modelled import page, predictions
    from benchmarks.modelled.rows import published

    rows = [row for row in published() if all(word in row.text for word in chosen.words)]
    if not rows:
        sys.exit(f"cnn-numba: no row has all of {' '.join(chosen.words)}")
    if chosen.on:
        rows = list({row.name: row._replace(gpu=chosen.on) for row in rows}.values())
        found = predictions.predict(rows, say=lambda line: None)
        print(json.dumps({each.row.name: each.microseconds for each in found}))
        return
    found = predictions.predict(rows, parts=chosen.record, say=lambda line: print(line, flush=True))
    for name, numbers in predictions.summarised([predictions.as_recorded(each) for each in found]).items():
        print(f"{name:20} " + ", ".join(f"{key} {value:.3g}" for key, value in numbers.items()))
    if chosen.record:
        page.write(page.new_record(found))


if __name__ == "__main__":
    main()
