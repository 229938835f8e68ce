"""The pages of the HTTP API in Chromium, cut off from everything but the broker."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from tests.support import tools
from tests.support.groups import required
from tests.support.web import Web, local_web

# No name but this machine's is found, whatever a page asks for.
CUT_OFF = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
OPTIONS = [
    CUT_OFF,
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 20_000


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with local_web() as found:
        found.broker.create_topic("orders", partitions=2)
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = str(required(tools.chromium))
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, headless=True, args=OPTIONS)
        yield launched
        launched.close()


@pytest.fixture
def bare_page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield page
    page.close()


@pytest.fixture
def page(bare_page: Page, web: Web) -> Iterator[Page]:
    """A page whose every request must go to the broker, and whose scripts must not fail."""
    foreign: list[str] = []
    errors: list[str] = []

    def requested(request: Request) -> None:
        if not request.url.startswith((web.url, "data:")):
            foreign.append(request.url)

    bare_page.on("request", requested)
    bare_page.on("pageerror", lambda error: errors.append(str(error)))
    bare_page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    yield bare_page
    assert (foreign, errors) == ([], [])


def test_the_network_is_cut(bare_page: Page) -> None:
    bare_page.goto("about:blank")
    reached = bare_page.evaluate(
        "fetch('http://example.com/', {mode: 'no-cors'}).then(() => true, () => false)"
    )
    assert reached is False


def test_the_page_shows_every_operation_and_tries_one(page: Page, web: Web) -> None:
    page.goto(f"{web.url}/docs")
    page.wait_for_selector("body[data-ready=yes]")
    document = web.ask("GET", "/openapi.json").json()
    expected = {
        each["operationId"] for path in document["paths"].values() for each in path.values()
    }
    shown = page.eval_on_selector_all(
        "#operations details[data-words]", "cards => cards.map(card => card.id)"
    )
    assert set(shown) == expected
    card = page.locator("#to_topic")
    card.locator("summary").first.click()
    card.get_by_label("topic", exact=True).fill("orders")
    card.get_by_label("body").fill('{"records": [{"key": "from", "value": "the page"}]}')
    card.get_by_role("button", name="Try it").click()
    expect(card.locator(".answer")).to_contain_text("200", timeout=PATIENCE_MS)
    found = [record for number in range(2) for record in web.records("orders", number)]
    assert ("from", "the page") in [(record["key"], record["value"]) for record in found]


def test_the_filter_hides_what_is_not_looked_for(page: Page, web: Web) -> None:
    page.goto(f"{web.url}/docs")
    page.wait_for_selector("body[data-ready=yes]")
    page.get_by_label("Filter").fill("/groups")
    visible = page.locator("#operations details[data-words]:visible")
    assert 0 < visible.count() < 15


def test_the_page_watches_a_topic(page: Page, web: Web) -> None:
    topic = web.broker.create_topic("watched", partitions=2)

    def produce(*values: str) -> None:
        records = [{"value": value, "partition": at % 2} for at, value in enumerate(values)]
        assert web.ask("POST", f"/topics/{topic}", json={"records": records}).status_code == 200

    page.goto(f"{web.url}/docs")
    page.wait_for_selector("body[data-ready=yes]")
    page.locator("#watch input[name=topic]").fill(topic)
    page.get_by_role("button", name="Watch").click()
    expect(page.locator("#watching")).to_have_text("connected", timeout=PATIENCE_MS)
    produce("a", "b", "c")
    expect(page.locator("#events li")).to_have_count(3, timeout=PATIENCE_MS)


def test_event_source_resumes_exactly(bare_page: Page, web: Web) -> None:
    """The browser reconnects by itself, with the last id: nothing is lost, nothing comes twice."""
    topic = web.broker.create_topic("resumed", partitions=2)
    bare_page.goto(f"{web.url}/healthz")
    bare_page.evaluate(
        """topic => {
            window.seen = [];
            window.opened = 0;
            window.source = new EventSource(`/topics/${topic}/stream`);
            source.onopen = () => { window.opened += 1; };
            source.onmessage = (event) => seen.push(JSON.parse(event.data).value);
        }""",
        topic,
    )
    bare_page.wait_for_function("window.opened === 1")

    def produce(first: int) -> None:
        records = [{"value": first + at, "partition": at % 2} for at in range(50)]
        web.ask("POST", f"/topics/{topic}", json={"records": records})

    produce(0)
    bare_page.wait_for_function("window.seen.length >= 50")
    web.broker.restart()
    produce(50)
    bare_page.wait_for_function("window.opened >= 2 && window.seen.length >= 100")
    seen = bare_page.evaluate("window.seen")
    assert sorted(seen) == list(range(100))


def test_metrics_are_text_that_a_browser_shows(page: Page, web: Web) -> None:
    page.goto(f"{web.url}/metrics")
    assert "headrace_http_requests_total" in page.inner_text("body")
