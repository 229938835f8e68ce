"""What `make test-rest-proxy` makes of outcomes, and the table of tests that do not pass."""

from scripts.rest_proxy.__main__ import PAGE, Outcome, expected, judge, outcomes

PASSED = Outcome("test_rest.py::test_a[pyloop]", "passed", "")
FAILED = Outcome("test_rest.py::test_b[pyloop-/]", "failed", "no registry")
ALLOWED = {"test_rest.py::test_b*/]": "Needs a registry."}


def test_the_page_lists_tests_with_reasons() -> None:
    listed = expected(PAGE.read_text())
    assert len(listed) > 15
    assert all(name.startswith("test_rest") and reason for name, reason in listed.items())


def test_what_is_as_listed_is_expected() -> None:
    assert judge([PASSED, FAILED], ALLOWED) == ([], "1 passed, 1 failed as expected, 0 unexpected")


def test_a_failure_that_is_not_listed_is_unexpected() -> None:
    unexpected, summary = judge([PASSED, FAILED], {})
    assert unexpected == ["test_rest.py::test_b[pyloop-/] failed: no registry"]
    assert summary == "1 passed, 0 failed as expected, 1 unexpected"


def test_a_listed_test_that_passes_is_unexpected() -> None:
    unexpected, _ = judge([PASSED, FAILED], {**ALLOWED, "*::test_a*": "It did."})
    assert unexpected == ["test_rest.py::test_a[pyloop] passes, and is listed as not to"]


def test_a_listed_test_that_was_not_run_is_unexpected() -> None:
    unexpected, _ = judge([PASSED, FAILED], {**ALLOWED, "*::test_c*": "Gone."})
    assert unexpected == ["*::test_c* is listed, and no test has this name"]


def test_outcomes_are_read_line_by_line() -> None:
    line = '{"test": "a", "outcome": "skipped", "reason": "r"}'
    assert outcomes([line]) == [Outcome("a", "skipped", "r")]
