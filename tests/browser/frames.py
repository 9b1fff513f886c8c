"""When a page has drawn what was asked of it: by its own frames, not by a clock, which a loaded machine outruns."""


def settled(page):
    """Returns when the page has handled its waiting events and drawn twice since (a redraw is asked for in a frame)."""
    page.evaluate(
        "() => new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done()))))"
    )
