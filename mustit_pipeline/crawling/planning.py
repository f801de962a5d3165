"""The calls of a crawl: its listing pages, then the products on them."""

import math
from collections.abc import Container, Iterable, Sequence

from mustit_pipeline.crawling.sql.choosing import ChosenSource
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.tasks import PlannedTask
from mustit_pipeline.domain.recrawl.choosing import Reason
from mustit_pipeline.domain.states import TaskStatus, TaskType
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import Settings

PAGE_PRIORITY = 0
PROBE_PRIORITY = 5
NEW_PRODUCT_PRIORITY = 10
LATE_PRODUCT_PRIORITY = 12
CHANGED_PRODUCT_PRIORITY = 15
KNOWN_PRODUCT_PRIORITY = 20
PRODUCT_TYPES = (TaskType.PRODUCT_DETAIL, TaskType.PRODUCT_OPTION)


def planned_status(settings: Settings) -> TaskStatus:
    """The state of a planned task: PUBLISHED in the PostgreSQL queue, WAITING until SQS has accepted its message."""
    return TaskStatus.WAITING if settings.task_transport == "sqs" else TaskStatus.PUBLISHED


def tasks_for(products: int, page_size: int) -> int:
    """The number of tasks of a crawl of so many products."""
    return math.ceil(products / page_size) + len(PRODUCT_TYPES) * products


def wanted_products(count: int, limit: int | None) -> int:
    """How many of the listed products a crawl fetches."""
    return count if limit is None else min(count, limit)


def expected_tasks(stored: StoredExecution, page_size: int, *, chosen: float | None) -> int:
    """All tasks that an execution comes to: while its pages are being read, their products are not planned yet.

    `chosen` is how many sources the recrawl policy is expected to fetch; None where everything is fetched.
    """
    planned = stored.planned_tasks
    if stored.is_swept or stored.listed_count is None:
        return planned
    if chosen is not None:
        return max(planned, math.ceil(stored.listed_count / page_size) + math.ceil(chosen))
    return max(planned, tasks_for(wanted_products(stored.listed_count, stored.product_limit), page_size))


def plan_pages(endpoints: Endpoints, seller_id: SellerId, count: int, limit: int | None) -> list[PlannedTask]:
    """The listing pages that hold so many products, or only the wanted ones."""
    return [
        PlannedTask(endpoints.listing(seller_id, page_no), PAGE_PRIORITY, page_no=page_no)
        for page_no in endpoints.page_numbers(wanted_products(count, limit))
    ]


def within_limit(endpoints: Endpoints, page_no: int, items: Sequence[int], limit: int | None) -> Sequence[int]:
    """The products of a page that are within the crawl's limit."""
    if limit is None:
        return items
    before = (page_no - endpoints.first_page_no) * endpoints.page_size
    return items[: max(0, limit - before)]


def plan_products(
    endpoints: Endpoints,
    versions: dict[int, int],
    types: Iterable[TaskType] = PRODUCT_TYPES,
    *,
    changed: Container[int] = (),
) -> list[PlannedTask]:
    """The calls for products with their versions; unpublished products come first, then `changed` ones."""
    kinds = tuple(types)
    planned: list[PlannedTask] = []
    for item_no, version in versions.items():
        known = CHANGED_PRODUCT_PRIORITY if item_no in changed else KNOWN_PRODUCT_PRIORITY
        priority = known if version else NEW_PRODUCT_PRIORITY
        item = ItemNo(item_no)
        if TaskType.PRODUCT_DETAIL in kinds:
            planned.append(PlannedTask(endpoints.detail(item), priority, item_no=item_no))
        if TaskType.PRODUCT_OPTION in kinds:
            planned.append(PlannedTask(endpoints.options(item), priority, item_no=item_no))
    return planned


_PRIORITIES = {
    Reason.NEW: NEW_PRODUCT_PRIORITY,
    Reason.LATE: LATE_PRODUCT_PRIORITY,
    Reason.SIGNALLED: CHANGED_PRODUCT_PRIORITY,
}


def plan_chosen(endpoints: Endpoints, chosen: Iterable[ChosenSource]) -> list[PlannedTask]:
    """The calls for sources that the recrawl policy has chosen, in its order."""
    calls = {TaskType.PRODUCT_DETAIL: endpoints.detail, TaskType.PRODUCT_OPTION: endpoints.options}
    return [
        PlannedTask(
            calls[one.source](ItemNo(one.item_no)),
            _PRIORITIES.get(one.reason, KNOWN_PRODUCT_PRIORITY),
            item_no=one.item_no,
        )
        for one in chosen
    ]


def plan_probes(endpoints: Endpoints, items: Iterable[int]) -> list[PlannedTask]:
    """The detail calls that confirm that products are gone."""
    return [
        PlannedTask(endpoints.detail(ItemNo(item_no)), PROBE_PRIORITY, item_no=item_no, probe=True) for item_no in items
    ]
