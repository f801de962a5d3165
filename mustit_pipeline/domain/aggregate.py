"""The base of every aggregate: its fields change only through its own methods."""


class Aggregate:
    """Base of the frozen dataclasses that change themselves; an assignment from outside raises."""

    __slots__ = ()

    def _set(self, **changes: object) -> None:
        for name, value in changes.items():
            object.__setattr__(self, name, value)
