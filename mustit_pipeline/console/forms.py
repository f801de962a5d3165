"""Forms: each is checked to come from a page of ours before a route sees it."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response
from starlette.datastructures import FormData, UploadFile

from mustit_pipeline.console import seals
from mustit_pipeline.console.seals import Purpose
from mustit_pipeline.console.visits import Visit, visit_of
from mustit_pipeline.domain.errors import Forbidden, ValidationFailed

STATE = "mustit.form"
TOKEN, BACK, CONFIRMED = "form_token", "back", "confirmed"
MOST_FIELDS = 2000


@dataclass(frozen=True, slots=True)
class Sent:
    """A form as it was sent."""

    fields: FormData
    path: str

    def text(self, name: str) -> str:
        """A field without the blanks around it; one that is not there is empty."""
        return self.untouched(name).strip()

    def untouched(self, name: str) -> str:
        """A field as it was typed."""
        value = self.fields.get(name, "")
        if not isinstance(value, str):
            return ""
        if "\0" in value:
            raise ValidationFailed(
                "VALIDATION_CHARACTERS",
                korean="저장할 수 없는 문자가 있습니다",
                english="The form contains characters that cannot be stored",
            )
        return value

    def all(self, name: str) -> list[str]:
        """Every value of a field that may be there more than once."""
        return [value for value in self.fields.getlist(name) if isinstance(value, str)]

    def file(self, name: str) -> UploadFile | None:
        """A file, if one was chosen."""
        value = self.fields.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None

    @property
    def back(self) -> str:
        """The page that the form was on; empty where it names none of ours."""
        return local_path(self.text(BACK))

    @property
    def is_confirmed(self) -> bool:
        """Whether the person has seen what the action will do."""
        return self.text(CONFIRMED) == "yes"


def local_path(address: str) -> str:
    """An address, if it is one of this server."""
    local = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if local and address.isprintable() else ""


async def checked_form(request: Request) -> Sent | None:
    """The form of a request; refused where it does not carry the token of this visit."""
    if request.method in ("GET", "HEAD"):
        return None
    fields = await request.form(max_files=1, max_fields=MOST_FIELDS)
    sent = Sent(fields, request.scope["path"])
    visit = visit_of(request)
    if not seals.is_seal(visit.ground.keys, Purpose.FORM, visit.form_id, sent.text(TOKEN)):
        raise Forbidden(
            "FORBIDDEN_FORM",
            korean="이 양식은 만료되었습니다. 페이지를 새로 고친 후 다시 시도하세요",
            english="This form is over: open its page again and send it anew",
        )
    request.scope["state"][STATE] = sent
    return sent


def sent_form(request: Request) -> Sent | None:
    """The form of a request, once it has been checked."""
    return request.scope["state"].get(STATE)


async def _sending(request: Request) -> Sent:
    sent = sent_form(request)
    assert sent is not None
    return sent


Sending = Annotated[Sent, Depends(_sending)]


def ask(visit: Visit, sent: Sent, *, title: str, text: str, action: str, danger: bool = False) -> Response:
    """A page that says what will happen, and asks."""
    kept = [
        (name, value)
        for name, value in sent.fields.multi_items()
        if isinstance(value, str) and name not in (TOKEN, CONFIRMED)
    ]
    return visit.page(
        "confirm.html", title=title, text=text, action=action, danger=danger, kept=kept, target=visit.request.path,
        back=sent.back or "/",
    )  # fmt: skip
