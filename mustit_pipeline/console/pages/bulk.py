"""One action on many things: those that were chosen, or all that match, each with its own entry in the audit log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from fastapi import Response

from mustit_pipeline.console.forms import Sent, ask
from mustit_pipeline.console.pages.frame import MOST_AT_ONCE, unreadable_choice
from mustit_pipeline.console.visits import Undo, Visit
from mustit_pipeline.domain.errors import DomainError

SHOWN_REASONS = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked before the action, with the number that it concerns in the text."""

    title: str
    text: str
    danger: bool = False
    # Whether more match than are changed at once.
    has_more: bool = False


def chosen_ids(sent: Sent, name: str) -> list[UUID]:
    """The ids of what was chosen in a form, as many as are changed at once."""
    try:
        return [UUID(text) for text in dict.fromkeys(sent.all(name))][:MOST_AT_ONCE]
    except ValueError:
        raise unreadable_choice() from None


def act_on_all(
    visit: Visit, sent: Sent, address: str, targets: Sequence[T], *, question: Question, change: Callable[[T], object],
    undo: Undo | None = None,
) -> Response:  # fmt: skip
    """Ask, then change one after the other; what is refused stops none of the others."""
    back = sent.back or address
    if not targets:
        return visit.done(back, visit.say("Nothing was chosen."), good=False)
    if not sent.is_confirmed:
        text = question.text
        if question.has_more or len(targets) > MOST_AT_ONCE:
            text += " " + visit.say(
                "So many at once: the first %(number)s; send it again for the others.", number=f"{MOST_AT_ONCE:,}"
            )
        return ask(visit, sent, title=question.title, text=text, action=question.title, danger=question.danger)
    done, reasons = 0, list[str]()
    for target in targets[:MOST_AT_ONCE]:
        try:
            change(target)
            done += 1
        except DomainError as error:
            reasons.append(error.message(visit.language))
    return visit.done(back, _outcome(visit, done, reasons), good=not reasons, undo=undo if done else None)


def _outcome(visit: Visit, done: int, reasons: list[str]) -> str:
    said = [visit.say("Done: %(number)s.", number=f"{done:,}")]
    if done:
        said = [visit.say_logged(*said)]
    if reasons:
        shown = " / ".join(dict.fromkeys(reasons[:SHOWN_REASONS]))
        said.append(visit.say("Refused: %(number)s (%(reason)s)", number=f"{len(reasons):,}", reason=shown))
    return " ".join(said)
