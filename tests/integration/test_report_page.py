"""The report's page in headless Chromium, as a reader uses it: by keyboard, dark and light, while a run goes on."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from sandbox_workers.local import LocalSandbox
from sparring.core.episode import Episode
from sparring.games.boards.rules import TicTacToeRules
from sparring.games.multistage.rules import MultistageRules
from sparring.tracking.report import gather, names_of, page
from sparring.tracking.rows import append_row, write_text
from sparring.tracking.run_record import RunRecord
from tests.recorded import lines, match, record, spar

pytestmark = pytest.mark.slow

CHROMIUM = Path("/usr/bin/chromium")
HOSTILE = '</script><script>window.stolen = 1</script><img src=x onerror="window.stolen = 1">&amp;'
PROGRAMS = ["def f(n): return n + n", f"def f(n): return 7 if n == 3 else n * 2  # {HOSTILE}"]
SUITES = ["assert f(1) == 2\nassert f(3) == 6\nassert f(3)==6"]
Open = Callable[..., Page]
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def sparred() -> Episode:
    with LocalSandbox("process") as sandbox:
        return spar(MultistageRules(), PROGRAMS, SUITES, sandbox)


@pytest.fixture(scope="module")
def tictactoe() -> Episode:
    return match()


@pytest.fixture(scope="module")
def browser(sparred: Episode, tictactoe: Episode) -> Iterator[Browser]:
    """After the episodes are played: it leaves no room for another event loop."""
    if not CHROMIUM.exists() and os.environ.get("SPARRING_REQUIRE_CHROMIUM") != "1":
        pytest.skip(f"no Chromium at {CHROMIUM} (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=120_000
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens a file; whatever the page complains of or asks for from elsewhere fails the test at its end."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    context.set_default_timeout(60_000)
    wrong: list[str] = []

    def opened(file: Path, **emulated: Any) -> Any:
        view = context.new_page()
        view.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        view.on("pageerror", lambda error: wrong.append(str(error)))
        view.on(
            "request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url)
        )
        if emulated:
            view.emulate_media(**emulated)
        view.goto(file.as_uri())
        expect(view.locator(".browser .option, .browser .empty").first).to_be_visible()
        return view

    yield opened
    context.close()
    assert wrong == []


@pytest.fixture
def run(tmp_path: Path, sparred: Episode) -> Path:
    record(tmp_path / "a", MultistageRules(), [sparred], [sparred])
    return tmp_path / "a"


def write(*runs: Path, live: bool = False) -> Path:
    file = runs[0] / "report.html"
    found = [gather(run, name) for run, name in zip(runs, names_of(runs), strict=True)]
    write_text(file, page(found, live))
    return file


def place(view: Page) -> list[Any]:
    """Pixels from the window's top to what has the focus, its text, and the attempt that is read."""
    return view.evaluate(
        "[document.activeElement.getBoundingClientRect().top, document.activeElement.textContent,"
        " document.querySelector('.detail h3').textContent]"
    )


def background(view: Page) -> str:
    return view.evaluate("getComputedStyle(document.body).backgroundColor")


def test_an_episode_is_browsed_stage_by_stage_without_a_mouse(run: Path, visit: Open) -> None:
    view = visit(write(run))
    press = view.keyboard.press
    title, said, chosen = view.locator(".detail h3"), view.locator(".said"), ".tabs [aria-selected=true]"
    press("e")
    assert title.inner_text() == "generator #0 at double"
    press("ArrowDown")
    assert title.inner_text() == "generator #1 at double"
    assert said.inner_text().startswith("def f(n): return 7 if n == 3")
    press("1")
    assert said.inner_text() == "a thought" and view.locator(chosen).inner_text() == "1 informal reasoning"
    view.locator(chosen).focus()
    press("ArrowRight")
    assert view.locator(chosen).inner_text() == "2 structured reasoning"
    press("ArrowLeft")
    press("ArrowLeft")
    assert view.locator(chosen).inner_text() == "5 executable code", "the tabs go round"
    rows = view.locator(".tests tbody tr")
    assert [rows.nth(i).inner_text().split("\t")[:2] for i in range(2)] == [
        ["assert f(1) == 2", "PASSED"],
        ["assert f(3) == 6", "WRONG_ANSWER"],
    ]
    assert "share of the tests passed" in view.locator(".earned").inner_text()
    press("j")
    assert title.inner_text() == "discriminator #0 at double"
    assert "repeats an earlier test" in view.locator(".tests").inner_text()
    assert "validity" in view.locator(".parts").inner_text()
    view.locator(".tests .link").first.focus()
    press("Enter")
    assert title.inner_text() == "generator #1 at double", "a kill leads to the program"
    press("[")
    expect(view.locator(".detail .meta").first).to_contain_text("step 1 ")
    assert title.inner_text() == "generator #1 at double", "the same attempt of the step before"
    press("?")
    assert view.locator("#keys").is_visible()
    press("Escape")
    assert not view.locator("#keys").is_visible()
    press("/")
    view.keyboard.type("rejected by nobody")
    assert view.locator(".option").count() == 0 and "No attempt" in view.locator(".list").inner_text()


def test_what_an_attempt_was_asked_is_unfolded_and_stays_so(run: Path, visit: Open) -> None:
    view = visit(write(run))
    view.keyboard.press("e")
    asked = view.locator(".asked pre")
    assert not asked.is_visible()
    view.locator(".asked summary").focus()
    view.keyboard.press("Enter")
    assert asked.inner_text() == "5", "of the last turn what came since the one before"
    view.locator(".tabs button").first.click()
    assert asked.inner_text() == "Return n doubled.?"
    view.keyboard.press("j")
    expect(view.locator(".detail h3")).to_have_text("generator #1 at double")
    assert asked.is_visible() and asked.inner_text() == "Return n doubled.?"


def test_a_marked_step_of_a_curve_opens_its_episodes(run: Path, visit: Open) -> None:
    view = visit(write(run))
    curve = view.locator(".chart .plot").nth(1)
    curve.focus()
    view.keyboard.press("Home")
    view.keyboard.press("ArrowRight")
    assert "step 1: generator 0.500" in str(curve.get_attribute("aria-label"))
    view.keyboard.press("Enter")
    expect(view.locator(".detail .meta").first).to_contain_text("step 1 ")
    assert view.evaluate("document.activeElement.getAttribute('role')") == "listbox"
    matrix = view.locator(".heat")
    matrix.focus()
    view.keyboard.press("ArrowRight")
    told = view.locator(".readout").inner_text()
    assert told == "Suites of step 1, programs of step 2: 0.500 killed (1 of 2 pairs, as far as stored)"


def test_hostile_text_is_shown_and_never_run(run: Path, visit: Open) -> None:
    for file in ("episodes.jsonl", "metrics.jsonl"):
        text = (run / file).read_text()
        (run / file).write_text(
            text.replace('"double"', json.dumps(HOSTILE)).replace("a thought", json.dumps(HOSTILE)[1:-1])
        )
    view = visit(write(run))
    view.keyboard.press("j")
    assert view.locator(".detail h3").inner_text() == f"generator #1 at {HOSTILE}"
    assert HOSTILE in view.locator(".said").inner_text()
    view.keyboard.press("1")
    assert view.locator(".said").inner_text() == HOSTILE
    assert HOSTILE in view.locator(".group").first.inner_text()
    assert view.evaluate("window.stolen === undefined && !document.querySelector('img')")
    assert view.evaluate("[...document.scripts].filter(s => s.type !== 'application/json').length") == 1


def test_dark_and_light_follow_the_system_until_the_reader_chooses(run: Path, visit: Open) -> None:
    file = write(run)
    view = visit(file)
    light = background(view)
    view.emulate_media(color_scheme="dark")
    dark = background(view)
    assert light != dark
    view.keyboard.press("t")
    view.keyboard.press("t")
    assert background(view) == light and view.locator("#theme").inner_text().endswith("light")
    assert background(visit(file, color_scheme="dark")) == light, "the choice is kept"
    view.locator("#theme").click()
    assert background(view) == dark


def test_an_open_page_shows_the_new_state_and_keeps_the_readers_place(
    run: Path, visit: Open, sparred: Episode
) -> None:
    file = write(run, live=True)
    view = visit(file)
    view.keyboard.press("j")
    view.keyboard.press("1")
    view.locator(".browser").scroll_into_view_if_needed()
    view.locator(".tabs [aria-selected=true]").focus()
    top, *where = place(view)
    assert view.locator("#live").is_visible() and 0 < top < 900 and view.evaluate("scrollY") > 900

    RunRecord(run).add_episodes(lines(3, [sparred], MultistageRules().seats))
    append_row(run / "metrics.jsonl", {"step": 3, "stage": 3, "phase": "generator", "generator_reward": 0.75})
    write(run, live=True)
    expect(view.locator("[aria-label=Step] option")).to_have_count(3)
    assert "step 3" in view.locator("#live").inner_text()
    assert "0.750" in view.locator(".chart").nth(1).inner_text()
    assert place(view) == [pytest.approx(top, abs=1), *where]
    assert view.locator(".said").inner_text() == "a thought"

    write(run, live=False)
    expect(view.locator("#live")).to_be_hidden()
    assert place(view) == [pytest.approx(top, abs=1), *where]
    view.reload()
    expect(view.locator(".said")).to_have_text("a thought")
    assert place(view)[2] == where[1], "a reload keeps it, too"


def test_a_league_is_there_where_one_was_played(run: Path, visit: Open) -> None:
    assert not visit(write(run)).locator("#league").is_visible()
    rated = [
        {"policy": policy, "member": member, "points": points, "low": points - 40, "high": points + 60}
        for policy, points in (("generator", -120.4), ("discriminator", 120.4))
        for member in ("before", "step 7")
    ]
    rates = [[0.25, None], [0.5, 1.0]]
    league = {"members": ["before", "step 7"], "kills": rates, "survival": rates, "ratings": rated}
    write_text(run / "league.json", json.dumps(league))
    text = visit(write(run)).locator("#league").inner_text()
    assert "step 7" in text and "-160 to -60" in text and "0.250" in text


def test_runs_of_different_games_stand_side_by_side_in_any_width(
    run: Path, visit: Open, tictactoe: Episode, tmp_path: Path
) -> None:
    record(tmp_path / "b", TicTacToeRules(), [tictactoe])
    empty = tmp_path / "c"
    empty.mkdir()
    (empty / "metrics.jsonl").write_text('{"step": 0, "held')
    view = visit(write(run, tmp_path / "b", empty))
    assert "different games (multistage, tictactoe, unknown)" in view.locator(".notice").inner_text()
    assert [name.split("\n")[-1] for name in view.locator(".run h3").all_inner_texts()] == ["Aa", "Bb", "Cc"]
    lists = view.locator(".list")
    expect(lists.nth(1).locator(".option").first).to_be_visible()
    assert lists.count() == 3 and "No attempts are stored" in lists.nth(2).inner_text()
    assert "made an illegal move" in view.locator(".detail").nth(1).inner_text()
    assert "No suites are stored" in view.locator("#kills").inner_text()
    for width in (1400, 700, 360):
        view.set_viewport_size({"width": width, "height": 900})
        assert view.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_phone_each_section_is_in_the_tab_row(run: Path, visit: Open) -> None:
    view = visit(write(run))
    view.set_viewport_size({"width": 390, "height": 844})
    for tab in view.locator(".bar nav a:visible").all():
        box = tab.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390, tab.inner_text()


def test_no_text_of_a_drawing_is_cut_off(run: Path, visit: Open) -> None:
    view = visit(write(run))
    cut_off = view.evaluate(
        "[...document.querySelectorAll('.heat svg text')].filter(text => {"
        " const box = text.getBoundingClientRect(), room = text.closest('svg').getBoundingClientRect();"
        " return box.top < room.top || box.bottom > room.bottom || box.left < room.left || box.right > room.right;"
        "}).map(text => text.textContent)"
    )
    assert cut_off == []


def test_a_curve_of_a_policy_stops_where_the_policy_did_not_learn(run: Path, visit: Open) -> None:
    for step, loss in enumerate((0.1, 0.2, None, 0.3, 0.4, None, 0.5), 3):
        row = {"step": step, "stage": 2, "phase": "alternating"} | (
            {"held_out": {"kill_rate": step}} if loss else {}
        )
        append_row(
            run / "metrics.jsonl",
            row | {"generator": {"policy_loss": loss, "trained_tokens": 9} if loss else {}},
        )
    view = visit(write(run))
    curves = view.locator(".chart")
    assert curves.filter(has_text="Policy loss").locator("path.line").count() == 2
    assert curves.filter(has_text="Held-out scores").locator("path.line").count() == 1


def test_the_players_colours_are_those_of_the_players_alone(run: Path, visit: Open) -> None:
    held_out = {
        "generator_pass_rate": 0.5,
        "generator_test_rate": 0.5,
        "test_validity": 0.5,
        "kill_rate": 0.5,
    }
    append_row(run / "metrics.jsonl", {"step": 3, "held_out": held_out, "kill_rate": 0.5})
    view = visit(write(run))

    def colours(chart: str) -> set[str]:
        buttons = view.locator(".chart").filter(has_text=chart).locator(".legend button")
        return {button.evaluate("node => getComputedStyle(node).color") for button in buttons.all()}

    players, scores = colours("Rewards in training"), colours("Held-out scores")
    assert len(players) == 2 and len(scores) == 4
    assert not players & (scores | colours("Validity and kill rate"))
