"""The error of settings, databases and our servers, used by every room and by the simulator, which imports no room."""

from typing import ClassVar


class EnvironmentFailure(Exception):
    """Settings, a database or a server of ours is missing or wrong.

    Subclasses set the code and a Korean topic; the details are English unless a Korean text is given too.
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
