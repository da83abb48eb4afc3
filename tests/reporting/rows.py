"""Rows of a summary, made by hand."""


def make_row(method, predicted_s, median=None, ratio=None, *, spread=0.02, **extra):
    """Returns a row; measured intervals reach `spread` of the median to both sides.

    The ratio of the best single device, 1, has no spread: it is to itself.
    """
    measured, interval = None, None
    if median is not None:
        low, high = (1 - spread) * median, (1 + spread) * median
        measured = {"median": median, "low": low, "high": high, "n": 40}
        if ratio is not None:
            width = 0.0 if ratio == 1.0 else spread * ratio
            interval = [ratio - width, ratio + width]
    return {
        "method": method,
        "predicted_s": predicted_s,
        "measured_s": measured,
        "versus_best_single_device": ratio,
        "versus_interval": interval,
        "bound_s": None,
        "gap": None,
        "search_s": 1.25,
        "evaluations": 32_000,
        "measurements": 40,
        "status": "finished",
        **extra,
    }
