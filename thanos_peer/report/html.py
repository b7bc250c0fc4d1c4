"""HTML in which every text is escaped, unless it was made here."""

from html import escape

VOID = {"img", "meta", "source"}  # elements without content


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(kind: str, /, *children: str, **attributes: str) -> Html:
    """An element; texts in it are escaped, other elements are not. `class_` stands for `class`, `_` for `-`."""
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    opening = "".join(f' {key}="{escape(value)}"' for key, value in named.items())
    if kind in VOID:
        return Html(f"<{kind}{opening}>")
    return Html(f"<{kind}{opening}>{join(*children)}</{kind}>")


def join(*children: str) -> Html:
    """Several, one after the other."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))
