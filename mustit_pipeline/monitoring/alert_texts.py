"""The texts of alerts in both languages: they are stored and sent in English, and shown in Korean to its readers.

A Korean text is found by the form of the English one, so that alerts of any age have theirs.
"""

import re
from dataclasses import dataclass
from functools import cached_property

_PLACE = re.compile(r"\\\{(\w+)\\\}")


@dataclass(frozen=True)
class Wording:
    """A text with places for values, in both languages."""

    english: str
    korean: str

    def say(self, **values: object) -> str:
        """The English text with its values."""
        return self.english.format(**values)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What a text of this form looks like; a value that is there twice is the same twice."""
        seen: set[str] = set()

        def place(found: re.Match[str]) -> str:
            name = found[1]
            again = name in seen
            seen.add(name)
            return f"(?P={name})" if again else f"(?P<{name}>.*)"

        return re.compile(_PLACE.sub(place, re.escape(self.english)), re.DOTALL)


HELD_DELETIONS = Wording(
    "{number} deletions of {seller} are held back", "{seller} 셀러의 상품 삭제 {number}건이 보류되었습니다"
)
HELD_DELETIONS_DETAIL = Wording(
    "A sweep misses {number} of {of} products: `mustit deletions list`, then approve or reject.",
    "목록에서 상품 {of}개 중 {number}개가 보이지 않습니다. "
    "보류된 삭제 화면(`mustit deletions list`)에서 승인하거나 거부하세요.",
)
HELD_CHANGES = Wording("Changes of {seller} are held back", "{seller} 셀러의 변경이 보류되었습니다")
HELD_CHANGES_DETAIL = Wording(
    "{number} of {of} products look wrong at once: `mustit holds list`, then look at some of them; "
    "`mustit holds release {seller}` lets them through.",
    "상품 {of}개 중 {number}개가 한꺼번에 의심스럽습니다. 보류된 변경 화면(`mustit holds list`)에서 몇 개를 확인한 후 "
    "공개하세요(`mustit holds release {seller}`).",
)
INCOMPLETE_SWEEP = Wording("The listing of {seller} was seen in part", "{seller} 셀러의 목록을 일부만 수집했습니다")
INCOMPLETE_SWEEP_DETAIL = Wording(
    "Nothing is deleted by such a sweep; the next one decides. "
    "`mustit execution list --seller {seller}`, then `show ID`, shows failed pages.",
    "이런 수집으로는 아무것도 삭제되지 않으며 다음 수집에서 결정됩니다. 크롤링 화면"
    "(`mustit execution list --seller {seller}`)에서 실패한 페이지를 볼 수 있습니다.",
)
FAILED_EVENTS = Wording("{number} product events are FAILED", "상품 이벤트 {number}건이 전송에 실패했습니다")
FAILED_EVENTS_DETAIL = Wording(
    "`mustit outbox list --status FAILED` shows why; fix it, then `mustit outbox retry --status FAILED`.",
    "이벤트 화면(`mustit outbox list --status FAILED`)에서 원인을 확인해 해결한 후 다시 보내세요"
    "(`mustit outbox retry --status FAILED`).",
)
SCHEDULE_FAILED = Wording("The schedule of {seller} is FAILED", "{seller} 셀러의 일정이 실패 상태입니다")
SCHEDULE_FAILED_DETAIL = Wording(
    "EventBridge did not accept it, so its crawls may not start; the run of relay_scheduler_outbox shows "
    "the reason. Fix it, then run that job with `everything: true`.",
    "EventBridge가 일정을 받아들이지 않아 크롤링이 시작되지 않을 수 있습니다. relay_scheduler_outbox 실행에서 원인을 "
    "확인해 해결한 후 `everything: true`로 다시 실행하세요.",
)
PARKED_MESSAGES = Wording(
    "{number} messages that ask for crawls are parked", "크롤링을 요청하는 메시지 {number}건이 보관되어 있습니다"
)
PARKED_MESSAGES_DETAIL = Wording(
    "{reasons}. `mustit triggers list` shows them; once fixed, `mustit triggers dismiss --all`.",
    "{reasons}. `mustit triggers list`로 확인하고, 해결한 후 `mustit triggers dismiss --all`을 실행하세요.",
)
DEAD_LETTERS = Wording("{number} messages of tasks are parked", "작업 메시지 {number}건이 보관되어 있습니다")
DEAD_LETTERS_DETAIL = Wording(
    "Their tasks failed after all attempts, or no worker came to an end with them. `mustit dlq list` says why; "
    "`mustit dlq redrive --all` has the calls made, `mustit dlq drop ID` removes what is not wanted.",
    "모든 시도 후에 실패했거나 어떤 작업자도 처리를 끝내지 못한 작업입니다. `mustit dlq list`로 이유를 확인하고, "
    "`mustit dlq redrive --all`로 호출을 다시 하게 하거나 `mustit dlq drop ID`로 필요 없는 것을 제거하세요.",
)
BREAKER_OPEN = Wording(
    "Too few user agents are left: calls to the marketplace have stopped",
    "사용할 수 있는 유저 에이전트가 너무 적어 마켓플레이스 호출이 중단되었습니다",
)
BREAKER_OPEN_DETAIL = Wording(
    "Work waits, nothing is lost; one request tries again by itself. `mustit agents status` says why.",
    "작업은 대기하며 잃는 것은 없습니다. 요청 하나가 자동으로 다시 시도합니다. 원인은 유저 에이전트 화면"
    "(`mustit agents status`)에 있습니다.",
)
THROTTLED = Wording(
    "The marketplace throttles us as a whole (429)", "마켓플레이스가 전체 요청을 제한하고 있습니다 (429)"
)
THROTTLED_DETAIL = Wording(
    "All calls pause and go on by themselves; nothing is lost.",
    "모든 호출이 멈췄다가 자동으로 재개됩니다. 잃는 것은 없습니다.",
)
CREDENTIAL_REFUSED = Wording(
    "The product server refuses our token (401 or 403)", "상품 서버가 토큰을 거부합니다 (401 또는 403)"
)
CREDENTIAL_REFUSED_DETAIL = Wording(
    "Nothing is sent and no event is lost. Set MUSTIT_PRODUCT_SERVER_TOKEN to one that it accepts: the next "
    "relay sends at once.",
    "전송이 중단되었지만 잃는 이벤트는 없습니다. MUSTIT_PRODUCT_SERVER_TOKEN을 상품 서버가 받아들이는 값으로 설정하면 "
    "다음 전송이 바로 이어집니다.",
)
UNREACHABLE = Wording("The product server cannot be reached", "상품 서버에 연결할 수 없습니다")
UNREACHABLE_DETAIL = Wording(
    "Events wait and lose no attempt; `mustit doctor` says whether it answers.",
    "이벤트는 시도 횟수를 잃지 않고 대기합니다. `mustit doctor`로 응답 여부를 확인하세요.",
)
CHECK_FAILED = Wording("The check {check} fails", "{check} 검사에 실패했습니다")
RUN_FAILED = Wording("{job} failed", "{job} 실행이 실패했습니다")
RUN_OF_PARTITION_FAILED = Wording("{job} of {partition} failed", "{partition}의 {job} 실행이 실패했습니다")
CHOSEN_FAILED = Wording("a run of chosen assets failed", "선택한 에셋의 실행이 실패했습니다")
CHOSEN_OF_PARTITION_FAILED = Wording(
    "a run of chosen assets of {partition} failed", "{partition}에서 선택한 에셋의 실행이 실패했습니다"
)
TICK_FAILED = Wording("The {kind} {name} fails", "{name}({kind})이(가) 실패합니다")
TICK_FAILED_DETAIL = Wording(
    "Its last tick failed: look at it in Automation.",
    "마지막 틱이 실패했습니다. Dagster의 Automation에서 확인하세요.",
)

# The most particular forms first: a text may have the form of a general one too.
ALL = (
    HELD_DELETIONS, HELD_DELETIONS_DETAIL, HELD_CHANGES, HELD_CHANGES_DETAIL, INCOMPLETE_SWEEP, INCOMPLETE_SWEEP_DETAIL,
    FAILED_EVENTS, FAILED_EVENTS_DETAIL, SCHEDULE_FAILED, SCHEDULE_FAILED_DETAIL, PARKED_MESSAGES,
    PARKED_MESSAGES_DETAIL, DEAD_LETTERS, DEAD_LETTERS_DETAIL, BREAKER_OPEN, BREAKER_OPEN_DETAIL, THROTTLED,
    THROTTLED_DETAIL, CREDENTIAL_REFUSED, CREDENTIAL_REFUSED_DETAIL, UNREACHABLE, UNREACHABLE_DETAIL,
    TICK_FAILED_DETAIL, CHECK_FAILED, TICK_FAILED, CHOSEN_FAILED, CHOSEN_OF_PARTITION_FAILED,
    RUN_OF_PARTITION_FAILED, RUN_FAILED,
)  # fmt: skip


def in_korean(text: str) -> str:
    """A text of an alert in Korean; one without a known form, such as the reason of a failed run, stays."""
    for wording in ALL:
        found = wording.pattern.fullmatch(text)
        if found is not None:
            return wording.korean.format(**found.groupdict())
    return text
