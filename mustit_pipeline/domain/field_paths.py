"""Fields of the marketplace's bodies by their paths, as people write them."""

import re

SOURCES = ("listing", "detail", "options")

# A source or a * first; names hold no blank and no sign, and a comma separates paths.
_PATH = re.compile(rf"(?:{'|'.join(SOURCES)}|(?=[^.]*\*)[\w*-]+)(?:\.[\w*-]+)*")


class FieldPaths:
    """Fields, each with everything below it; `*` matches any text. An empty list is valid."""

    def __init__(self, written: str) -> None:
        self.paths = tuple(path for path in (part.strip() for part in written.split(",")) if path)
        for path in self.paths:
            if _PATH.fullmatch(path) is None:
                raise ValueError(
                    f"takes paths of fields such as detail.ProductInfoModule.stock or listing.items.*, separated by "
                    f"commas and beginning with {', '.join(SOURCES[:-1])} or {SOURCES[-1]}; {path!r} is none"
                )
        any_of = "|".join(re.escape(path).replace(r"\*", ".*") for path in self.paths)
        self._pattern = re.compile(rf"(?:{any_of})(?:\..*)?") if self.paths else None

    @classmethod
    def checked(cls, written: str) -> str:
        """The same text, if it is valid."""
        cls(written)
        return written

    def include(self, path: str) -> bool:
        """Whether a field is covered by these paths."""
        return self._pattern is not None and self._pattern.fullmatch(path) is not None
