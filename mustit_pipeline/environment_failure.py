"""The error of what we run on, for every room and for the simulator, which knows none of them."""

from typing import ClassVar


class EnvironmentFailure(Exception):
    """What we run on is missing or wrong: settings, a database, a server of ours.

    Subclasses fix the code, and say in Korean what they are about; the particulars are English unless they are given in
    Korean too.
    """

    code: ClassVar[str] = ""
    topic: ClassVar[str] = ""

    def __init__(self, english: str, *, korean: str | None = None) -> None:
        super().__init__(english)
        self.english = english
        self.korean = korean or f"{self.topic}: {english}"

    def message(self, language: str = "ko") -> str:
        """The text for people: English where the language is English, otherwise Korean."""
        return self.english if language.lower().split("-")[0] == "en" else self.korean
