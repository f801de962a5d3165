"""`mustit demo` proves itself, and a second one goes on with the same world."""

from pathlib import Path

from mustit_pipeline_tests.e2e.conftest import WIDE_OPEN, Mustit


def test_the_demo_ends_equal_and_a_second_one_goes_on_with_the_same_world(tmp_path: Path) -> None:
    mustit = Mustit(tmp_path / "home", WIDE_OPEN)

    first = mustit("demo", "--json", "--sellers", "1")
    second = mustit("demo", "--json", "--sellers", "1")

    for answer in (first, second):
        assert answer.code == 0, answer.err
        assert (answer.document["differences"], answer.document["failedTasks"]) == (0, 0)
    assert first.document["changes"]["CREATED"] == 60 + 2
    assert second.document["changes"]["CREATED"] == 2
    assert first.document["changes"]["DELETED"] == second.document["changes"]["DELETED"] == 2


def test_the_demo_refuses_to_change_servers_that_are_not_its_own(tmp_path: Path) -> None:
    refused = Mustit(tmp_path / "home")("demo", MUSTIT_BASE_URL="http://127.0.0.1:9")

    assert refused.code == 1
    assert "MUSTIT_BASE_URL" in refused.err
    assert not (tmp_path / "home").exists()
