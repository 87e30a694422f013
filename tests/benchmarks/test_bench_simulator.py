import pytest

from benchmarks import simulator, simulator_kernels
from gpuless import sanitize


def test_the_kernels_are_correct_and_quick():
    samples = simulator_kernels.measure(repeats=3)
    first = samples.pop("first launch")
    assert len(samples) == len(first) == 5
    # Two to ten on a quiet machine; the target is 15.
    assert all(min(times) < 60 for times in samples.values()), samples
    reports = []
    simulator_kernels.measure(repeats=1, wrap=lambda kernel: Noting(kernel, reports))
    assert len(reports) == 10
    assert all(report.ok for report in reports), str(reports[0])


class Noting:
    """Sanitizes, and keeps the reports."""

    def __init__(self, kernel, reports):
        self.kernel, self.reports = kernel, reports

    def __getitem__(self, configuration):
        run = sanitize(self.kernel)[configuration]
        return lambda *arguments: self.reports.append(run(*arguments))


def test_the_medians_are_compared(monkeypatch, capsys):
    stock, plain, sanitized = {"some": [900.0, 100.0, 200.0]}, {"some": [4.0, 1.0, 2.0]}, {"some": [20.0] * 3}
    answers = iter([stock, {"plain": plain, "sanitized": sanitized}])
    monkeypatch.setattr(simulator, "answer_of", lambda arguments, **environment: next(answers))
    record = simulator.bench_simulator()
    (result,) = record["results"]
    assert (result["times_faster"], result["sanitizer_cost"]) == (100, 10)
    assert result["medians"] == {"stock": 200, "ours": 2, "sanitized": 20}
    assert record["benchmark"] == "simulator"
    assert "100 times faster" in capsys.readouterr().out


@pytest.mark.exhaustive("the same file: what a thread costs, and how the medians are compared")
@pytest.mark.slow
def test_the_simulator_is_five_times_faster_than_the_stock_one():
    results = simulator.bench_simulator()["results"]
    assert all(result["times_faster"] > 5 for result in results)
    assert all(result["sanitizer_cost"] < 20 for result in results)
