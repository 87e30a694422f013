"""Pictures of a step, and of all steps of a warp; coordinates are points from the upper left corner."""

from cnn_course.engine import plots
from cnn_course.engine.stepper.canvas import Canvas, letters
from cnn_course.engine.stepper.schedule import WARP, layout_of
from cnn_course.engine.stepper.steps import DONE, OFF, RUNS, WAITS
from cnn_course.engine.stepper.words import cost, heading, number

WIDTH = 518  # 7.2 inches
_MARGIN, _ROW = 7, 11
_CODE = {"font": "DejaVuSansMono"}
_LANES = 16  # in one strip
_LABEL = 68
_CELL = (WIDTH - 2 * _MARGIN - _LABEL) / _LANES
_SHARED, _LARGEST = 200, 17  # width of the shared arrays, and of their elements
_SOURCE_ROWS, _REGISTERS, _ACCESSES = 20, 8, 3
_COLOURS = {RUNS: "#8cc2e6", WAITS: "#f2c773", OFF: "#e3e0db", DONE: plots.PAPER}
_CURRENT, _CHANGED, _CONFLICT = "#f7e3b5", "#a8d5ba", "#f0a58a"
_PLACES = ("#ab96d6", "#d9c6f2")  # alternating sectors
_PALE = "#6f6c67"
_READ, _WRITTEN = plots.BLUE, plots.RED


class Sheet:
    """Draws the steps of one warp, all of one size."""

    def __init__(self, steps, warp, warps):
        self._steps, self._warp, self._warps = steps, warp, warps
        self._lanes = max(lane for lane, state in enumerate(steps[0].states) if state) + 1
        self._varying = _varying(steps)
        self._registers = max((min(len(names), _REGISTERS) for names in self._varying.values()), default=0)
        self._accesses = min(max(len(step.accesses) for step in steps), _ACCESSES)
        self._source_rows = min(max(len(layout_of(step.function).lines) for step in steps), _SOURCE_ROWS)
        shared = [_grid_size(each) for each in steps[-1].shared]
        self._shared = max((max(columns * side, 90) for _, columns, side in shared), default=0)
        below = sum(rows * side + 18 for rows, _, side in shared)
        self._top = 24 + max(self._source_rows * _ROW + 6, below)
        strips = -(-self._lanes // _LANES)
        self._strip = (2 + self._registers + self._accesses) * _ROW + 6
        self._foot = self._top + strips * self._strip
        self.height = self._foot + (1 + max(self._accesses, warps > 1)) * _ROW + 6

    def step(self, index):
        """Return the image of one step."""
        step = self._steps[index]
        canvas = Canvas(WIDTH, self.height)
        title = heading(step, index, len(self._steps), self._warp)
        canvas.text(_MARGIN, 12, title, 9, font="DejaVuSans-Bold")
        self._source(canvas, step)
        if step.shared:
            _shared_arrays(canvas, step, WIDTH - _MARGIN - self._shared)
        for strip in range(0, self._lanes, _LANES):
            self._strip_of(canvas, step, strip, self._top + strip // _LANES * self._strip)
        self._notes(canvas, step)
        return canvas.image

    def _source(self, canvas, step):
        lines = layout_of(step.function).lines
        numbers = list(lines)
        width = WIDTH - 2 * _MARGIN - (self._shared + 10 if self._shared else 0)
        here = numbers.index(step.line) if step.line in lines else 0
        first = min(max(here - self._source_rows // 2, 0), max(len(numbers) - self._source_rows, 0))
        fit = letters(width - 18, 7)
        for row, line in enumerate(numbers[first : first + self._source_rows]):
            y = 24 + row * _ROW
            if line == step.line:
                canvas.box(_MARGIN - 3, y, width + 3, _ROW, _CURRENT)
            canvas.text(_MARGIN + 12, y + _ROW / 2, line, 6, _PALE, "right", **_CODE)
            canvas.text(_MARGIN + 18, y + _ROW / 2, _cut(lines[line], fit), 7, **_CODE)

    def _strip_of(self, canvas, step, first, y):
        """Draw the rows of 16 lanes: number, state, registers, accesses."""
        lanes = range(first, min(first + _LANES, self._lanes))
        for lane in lanes:
            canvas.text(_x(lane) + _CELL / 2, y + _ROW / 2, lane, 6, _PALE, "center")
        canvas.text(_MARGIN, y + _ROW / 2, "lane", 6.5)
        y += _ROW
        for lane in lanes:
            _cell(canvas, lane, y, _COLOURS[step.states[lane]], step.states[lane])
        y += _ROW
        names = self._varying[step.function]
        for row, name in enumerate(_shown(names, step)):
            self._register(canvas, step, name, lanes, y + row * _ROW)
        y += self._registers * _ROW
        for row, access in enumerate(step.accesses[: self._accesses]):
            _access(canvas, access, lanes, y + row * _ROW)

    def _register(self, canvas, step, name, lanes, y):
        canvas.text(_MARGIN, y + _ROW / 2, _cut(name, 15), 6.5, **_CODE)
        values = step.registers.get(name)
        for lane in lanes if values else ():
            value = values[lane]
            changed = lane in step.changed.get(name, ())
            text = "" if value is None else number(value)
            active = step.states[lane] in (RUNS, WAITS)
            _cell(canvas, lane, y, _CHANGED if changed else None, text, plots.INK if active else _PALE)

    def _notes(self, canvas, step):
        """Write the variables that are equal in all lanes and the cost of accesses; draw which warps wait."""
        y = self._foot + _ROW / 2
        same = [
            f"{name} = {number(next(value for value in values if value is not None))}"
            for name, values in step.registers.items()
            if name not in self._varying[step.function] and any(value is not None for value in values)
        ]
        if same:
            canvas.text(_MARGIN, y, _cut("the same in all lanes: " + ", ".join(same), 118), 7)
        for access in step.accesses[: self._accesses]:
            y += _ROW
            canvas.text(_MARGIN, y, _cut(cost(access), 118), 7)
        if self._warps > 1 and step.at_barrier:
            _warps(canvas, self._warp, self._warps, self._foot + _ROW)


def _cut(text, letters):
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _x(lane):
    return _MARGIN + _LABEL + lane % _LANES * _CELL


def _cell(canvas, lane, y, colour, text, ink=plots.INK):
    if colour:
        canvas.box(_x(lane) + 0.5, y + 0.5, _CELL - 1, _ROW - 1, colour)
    canvas.text(_x(lane) + _CELL / 2, y + _ROW / 2, text, 6, ink, "center")


def _varying(steps):
    """Return for each function the variables that differ between lanes in some step."""
    varying: dict = {}
    for step in steps:
        names = varying.setdefault(step.function, {})
        for name, values in step.registers.items():
            if len({number(value) for value in values if value is not None}) > 1:
                names[name] = None
    return {function: list(names) for function, names in varying.items()}


def _shown(names, step):
    """Return the variables that fit, first those that the step has changed."""
    if len(names) <= _REGISTERS:
        return names
    chosen = sorted(names, key=lambda name: name not in step.changed)[:_REGISTERS]
    return [name for name in names if name in chosen]


def _access(canvas, access, lanes, y):
    """Draw the element of each lane, coloured by sector, or by bank conflicts."""
    canvas.text(_MARGIN, y + _ROW / 2, _cut(f"{access.kind} {access.array}", 18), 6.5)
    order = {place: rank for rank, place in enumerate(sorted(set(access.places.values())))}
    words: dict = {}
    for lane, element in access.elements.items():
        words.setdefault(access.places[lane], set()).add(element)
    for lane in lanes:
        if lane not in access.elements:
            continue
        place = access.places[lane]
        colour = _PLACES[order[place] % 2] if access.space == "global" else _PLACES[0]
        if (access.degree > 1 and len(words[place]) > 1) or access.serialised > 1:
            colour = _CONFLICT
        _cell(canvas, lane, y, colour, _cut(",".join(map(str, access.elements[lane])), 8))


def _grid_size(shared):
    """Return the rows and columns in which a shared array is drawn, and the width of an element."""
    values = shared.values
    columns = values.shape[-1] if values.ndim > 1 else min(values.size, 16)
    rows = -(-values.size // columns)
    side = min(_SHARED / columns, _LARGEST)
    return rows, columns, side


def _shared_arrays(canvas, step, left):
    y = 24
    for each in step.shared:
        shape = " x ".join(map(str, each.values.shape))
        canvas.text(left, y + 5, f"shared {each.name} ({shape})", 7)
        rows, columns, side = _grid_size(each)
        _grid(canvas, each, left, y + 12, columns, side)
        y += rows * side + 18


def _grid(canvas, shared, left, top, columns, side):
    """Draw the elements of a shared array: pale if unwritten, framed if the step uses them."""
    frames = []
    read, written = shared.read.ravel(), shared.written.ravel()
    for place, value in enumerate(shared.values.ravel()):
        x, y = left + place % columns * side, top + place // columns * side
        colour = _COLOURS[OFF] if value is None else "#cfe3f1"
        canvas.box(x, y, side - 0.6, side - 0.6, colour)
        if side > 11:
            text = "?" if value is None else _cut(number(value), 5)
            size = 5 if len(text) < 4 else 4
            canvas.text(x + side / 2, y + side / 2, text, size, align="center")
        if read[place] or written[place]:
            frames.append((x, y, _WRITTEN if written[place] else _READ))
    for x, y, colour in frames:
        canvas.box(x + 0.2, y + 0.2, side - 1, side - 1, frame=colour)


def _warps(canvas, warp, warps, y):
    """Draw which warps wait at a barrier; in the simulator they arrive in order."""
    canvas.text(_MARGIN, y + _ROW / 2, "at the barrier", 6.5)
    width = min((WIDTH - 2 * _MARGIN - _LABEL) / warps, 60)
    all_here = warp == warps - 1
    for each in range(warps):
        here = each <= warp
        x = _MARGIN + _LABEL + each * width
        colour = _COLOURS[OFF] if not here else _COLOURS[RUNS] if all_here else _COLOURS[WAITS]
        canvas.box(x + 0.5, y + 0.5, width - 1, _ROW - 1, colour)
        state = "to come" if not here else "goes on" if all_here else "waits"
        text = f"warp {each} {state}" if width > 50 else str(each)
        canvas.text(x + width / 2, y + _ROW / 2, text, 5.5, align="center")


_OVERVIEW_ROWS = 60


def overview(steps, warp):
    """Return an image of all steps of a warp: a row for each, with its line, its lanes and its accesses."""
    shown = steps[:_OVERVIEW_ROWS]
    code, side, row = 232, 5, 10
    canvas = Canvas(WIDTH, 26 + row * len(shown) + (_ROW if len(shown) < len(steps) else 0))
    canvas.text(_MARGIN, 11, f"warp {warp}: line, lanes 0 to 31, accesses", 8, font="DejaVuSans-Bold")
    for number_, step in enumerate(shown):
        y = 20 + number_ * row
        canvas.text(_MARGIN + 12, y + row / 2, step.line, 6, _PALE, "right", **_CODE)
        text = f"{step.text}  (back from {step.back_from})" if step.back_from else step.text
        canvas.text(_MARGIN + 18, y + row / 2, _cut(text, letters(code - 18, 6.5)), 6.5, **_CODE)
        for lane in range(WARP):
            if state := step.states[lane]:
                canvas.box(_MARGIN + code + lane * side, y + 1, side - 0.6, row - 2, _COLOURS[state])
        canvas.text(_MARGIN + code + WARP * side + 6, y + row / 2, _cut(_short(step), 28), 6)
    if len(shown) < len(steps):
        rest = plots.counted(len(steps) - len(shown), "further step")
        canvas.text(_MARGIN + 18, 20 + len(shown) * row + _ROW / 2, f"and {rest}", 6.5)
    return canvas.image


def _short(step):
    """Return the accesses of a step in short: sectors of global memory, conflicts of shared memory."""
    if step.at_barrier:
        return "barrier"
    sectors, parts = {}, []
    for each in step.accesses:
        ways = max(each.degree, each.serialised)
        if each.space == "global":
            sectors.setdefault(each.array, []).append(str(each.sectors))
        else:
            parts.append(f"{each.array} {ways}-way" if ways > 1 else each.array)
    if sectors:
        each = ", ".join(f"{array} {' + '.join(numbers)}" for array, numbers in sectors.items())
        parts.insert(0, f"sectors: {each}")
    return "; ".join(parts)
