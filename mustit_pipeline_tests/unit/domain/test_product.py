"""Products: complete or not, versions, absence and return."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.errors import InvariantViolated
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline_tests.unit.domain.builders import LATER, T0, product

HASHES = {"minishop_data_hash": "a", "detail_data_hash": "b", "option_data_hash": "c"}


def refused_code(action, *args, **kwargs) -> str:
    with pytest.raises(InvariantViolated) as refused:
        action(*args, **kwargs)
    return refused.value.code


@pytest.mark.parametrize("seen", [set(c) for n in range(4) for c in itertools.combinations(TaskType, n)])
def test_a_product_is_complete_once_all_three_sources_were_seen(seen: set[TaskType]) -> None:
    partly = product()
    for source in seen:
        assert partly.record_content(source, "hash")
    assert partly.is_complete is (seen == set(TaskType))
    if partly.is_complete:
        assert partly.publish() == 1
    else:
        assert refused_code(partly.publish) == "INVARIANT_PRODUCT_INCOMPLETE"
        assert partly.version == 0


@pytest.mark.parametrize("source", TaskType)
def test_a_source_has_changed_when_its_own_hash_differs(source: TaskType) -> None:
    known = product(**HASHES)
    own = {TaskType.MINISHOP: "a", TaskType.PRODUCT_DETAIL: "b", TaskType.PRODUCT_OPTION: "c"}[source]
    assert not known.changed(source, own)
    assert not known.record_content(source, own)
    assert known.changed(source, "other")
    assert known.record_content(source, "other")
    assert not known.changed(source, "other")
    others = {TaskType.MINISHOP: "a", TaskType.PRODUCT_DETAIL: "b", TaskType.PRODUCT_OPTION: "c"}
    assert not any(known.changed(other, text) for other, text in others.items() if other is not source)


def test_each_published_state_is_the_next_version() -> None:
    known = product(**HASHES, version=4)
    assert [known.publish(), known.publish()] == [5, 6]
    assert known.version == 6


@pytest.mark.parametrize("sweeps", [1, 2, 5])
def test_the_number_of_sweeps_is_a_setting(sweeps: int) -> None:
    absent = product(absent_sweeps=sweeps - 1)
    assert not absent.is_deletion_candidate(sweeps)
    assert refused_code(absent.delete, T0, sweeps=sweeps) == "INVARIANT_PRODUCT_NOT_ABSENT"
    absent = product(absent_sweeps=sweeps)
    assert absent.is_deletion_candidate(sweeps)
    absent.delete(T0, sweeps=sweeps)
    assert absent.is_deleted


def test_deleting_a_published_product_is_a_version() -> None:
    gone = product(**HASHES, version=3, absent_sweeps=2)
    assert gone.delete(LATER)
    assert (gone.version, gone.deleted_at, gone.is_deleted) == (4, LATER, True)


def test_deleting_a_product_that_was_never_published_is_no_version() -> None:
    unknown = product(absent_sweeps=2)
    assert not unknown.delete(LATER)
    assert (unknown.version, unknown.is_deleted) == (0, True)


def test_an_admin_can_approve_a_deletion_whose_absences_did_not_count() -> None:
    held = product(**HASHES, version=1)
    assert held.delete(LATER, approved=True)
    assert held.is_deleted


@pytest.mark.parametrize("approved", [True, False])
def test_a_deleted_product_can_be_neither_deleted_nor_published(approved: bool) -> None:
    gone = product(**HASHES, version=2, absent_sweeps=2, deleted_at=T0)
    assert refused_code(gone.delete, LATER, approved=approved) == "INVARIANT_PRODUCT_DELETED"
    assert refused_code(gone.publish) == "INVARIANT_PRODUCT_DELETED"
    assert (gone.version, gone.deleted_at) == (2, T0)


def test_a_deleted_product_is_not_looked_for_again() -> None:
    assert not product(absent_sweeps=2, deleted_at=T0).is_deletion_candidate()


def test_a_product_that_returns_goes_on_with_its_versions() -> None:
    gone = product(**HASHES, version=2, absent_sweeps=2, deleted_at=T0)
    gone.restore()
    assert (gone.is_deleted, gone.absent_sweeps, gone.version) == (False, 0, 2)
    assert gone.publish() == 3


def test_only_a_deleted_product_can_be_restored() -> None:
    assert refused_code(product().restore) == "INVARIANT_PRODUCT_NOT_DELETED"


STEPS = {
    "record_content": lambda p: [p.record_content(source, "h") for source in TaskType],
    "publish": Product.publish,
    "delete": lambda p: p.delete(T0, approved=True),
    "restore": Product.restore,
}


@given(st.lists(st.sampled_from(sorted(STEPS))))
def test_versions_only_grow_and_one_at_a_time(steps: list[str]) -> None:
    tracked = product()
    for step in steps:
        before = tracked.version
        try:
            STEPS[step](tracked)
        except InvariantViolated:
            assert tracked.version == before
        assert tracked.version in (before, before + 1)
        assert tracked.version == 0 or tracked.is_complete


@pytest.mark.parametrize(("version", "beyond", "next_version"), [(3, 0, 4), (3, 3, 4), (3, 9, 10)])
def test_a_state_sent_again_has_a_number_that_the_receiver_has_never_seen(
    version: int, beyond: int, next_version: int
) -> None:
    published = product(version=version, deleted_at=T0)
    assert published.resend(beyond) == published.version == next_version


def test_what_was_never_published_cannot_be_sent_again() -> None:
    assert refused_code(product().resend, 0) == "INVARIANT_PRODUCT_UNPUBLISHED"
