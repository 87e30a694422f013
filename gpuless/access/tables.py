"""The tables that show an `AccessMap`, as text and as HTML."""

import html

from gpuless.positions import describe_launch
from gpuless.wrapping import aligned


def _tables(access):
    """Return the tables as (heading, columns, rows)."""
    tables = []
    for heading, traffics in (("", access.arrays), (" by line", access.lines)):
        for space, columns, cells in (
            ("global", _GLOBAL_COLUMNS, _global_cells),
            ("shared", _SHARED_COLUMNS, _shared_cells),
        ):
            rows = [_what(each) + cells(each) for each in traffics if each.space == space]
            if rows:
                tables.append((f"{space} memory{heading}", ("", "", *columns), rows))
    return tables


def title(access):
    """Return a one-line summary of an `AccessMap`."""
    launch = describe_launch(access.trace.kernel, access.trace.grid, access.trace.block_shape)
    parts = []
    if access.sectors:
        times = f"{access.bytes_moved / access.minimum:.1f} times the minimum"
        asked = f"{100 * access.efficiency:.3g}% of it asked for"
        parts.append(f"{_bytes(access.bytes_moved)} moved, {times}, {asked}")
    if access.degree:
        parts.append(
            "no bank conflicts" if access.degree == 1 else f"bank conflicts up to {access.degree}-way"
        )
    if access.serialised > 1:
        parts.append(f"atomics serialised, up to {access.serialised} lanes at one word")
    return f"{launch}: {'; '.join(parts) or 'no traffic'}"


def text(access):
    """Return the tables of an `AccessMap` as text."""
    lines = [title(access)]
    for heading, columns, rows in _tables(access):
        lines += ["", heading, *(f"  {row}" for row in aligned([columns, *rows], 2))]
    return "\n".join(lines)


def as_html(access):
    """Return the tables of an `AccessMap` as HTML."""
    # Colours come from the page, so that it reads well on light and on dark.
    parts = [f"<p><b>{html.escape(title(access))}</b></p>"]
    for heading, columns, rows in _tables(access):
        head = "".join(_html_cell("th", text, i) for i, text in enumerate(columns))
        body = "".join(
            f"<tr>{''.join(_html_cell('td', text, i) for i, text in enumerate(row))}</tr>" for row in rows
        )
        parts.append(
            f"<p style='margin-bottom:0.2em'>{heading}</p>"
            f"<table style='border-collapse:collapse'><tr>{head}</tr>{body}</table>"
        )
    return f"<div>{''.join(parts)}</div>"


_GLOBAL_COLUMNS = ("requests", "sectors", "per request", "efficiency", "moved", "minimum")
_SHARED_COLUMNS = ("requests", "wavefronts", "per request", "conflicts")


def _what(traffic):
    if traffic.site is None:
        return (traffic.array, traffic.access)
    return (f"{traffic.site.line}: {traffic.site.expression or traffic.array}", traffic.access)


def _global_cells(traffic):
    return (
        str(traffic.requests),
        str(traffic.sectors),
        f"{traffic.sectors_per_request:.1f}",
        f"{100 * traffic.efficiency:.3g}%",
        _bytes(traffic.bytes_moved),
        _bytes(traffic.minimum),
    )


def _shared_cells(traffic):
    conflicts = "none" if traffic.degree <= 1 else f"{traffic.degree}-way"
    if traffic.serialised > 1:
        conflicts += f", {traffic.serialised} lanes serialised"
    each = traffic.wavefronts / traffic.requests
    return str(traffic.requests), str(traffic.wavefronts), f"{each:.1f}", conflicts


def _bytes(count):
    for unit, size in (("MB", 2**20), ("KB", 2**10)):
        if count >= 10 * size:
            return f"{count / size:.0f} {unit}"
    return f"{count} B"


def _html_cell(tag, text, column):
    side = "left" if column < 2 else "right"
    style = f"text-align:{side};padding:0.2em 0.7em;border-top:1px solid currentColor"
    text = html.escape(text)
    return f"<{tag} style='{style}'>{f'<code>{text}</code>' if text and column == 0 else text}</{tag}>"
