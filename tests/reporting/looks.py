"""What can be seen of a figure without eyes."""

import itertools

_TOUCHING = 1.0  # pixels that neighbours may share


def assert_legible(figure):
    """All texts lie in the figure, apart from each other, in six points or more."""
    figure.draw_without_rendering()
    texts = [text for text in _texts(figure) if text.get_text() and text.get_visible()]
    boxes = [box(text) for text in texts]
    whole = figure.bbox.padded(_TOUCHING)
    for text, its_box in zip(texts, boxes, strict=True):
        assert text.get_fontsize() >= 6, text.get_text()
        inside = whole.contains(*its_box.min) and whole.contains(*its_box.max)
        assert inside, f"{text.get_text()!r} leaves the figure"
    pairs = itertools.combinations(zip(texts, boxes, strict=True), 2)
    for (one, its_box), (other, other_box) in pairs:
        overlap = its_box.padded(-_TOUCHING).overlaps(other_box)
        assert not overlap, f"{one.get_text()!r} overlaps {other.get_text()!r}"


def box(text):
    """Where a text is drawn, in pixels, without the line that leads from it to a point."""
    from matplotlib.text import Text

    return Text.get_window_extent(text)


def words(figure):
    """The texts of a figure's axes, without those of ticks."""
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def legend(figure):
    """The texts of a figure's legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


def _texts(figure):
    yield from figure.texts
    for found in figure.legends:
        yield from found.get_texts()
    for axes in figure.axes:
        yield from axes.texts
        yield from (axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label)
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            ticks = axis.get_major_ticks()
            yield from (t.label1 for t in ticks if t.get_visible() and low <= t.get_loc() <= high)
