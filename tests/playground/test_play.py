"""The page of `play`, in a real headless Chromium and from a local server, shows the same times and memory as the
analysis."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import pipesched
from pipesched.model.costs import Costs
from pipesched.model.schedule import Schedule
from pipesched.playground.gallery import Played, entry_of, gallery
from pipesched.playground.pages import pages
from pipesched.views.chart.chart import Chart, chart
from tests import depth
from tests.readers.browser import Page, browser
from tests.readers.served import served

HANGING = "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"
"""Rank 0 runs B0.0 before F0.1, rank 1 runs F1.1 before B1.0: each waits for what the other has not run."""


@dataclass(frozen=True)
class Site:
    """The page, served. address: of its folder; played: what it has."""

    address: str
    played: tuple[Played, ...]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from opened(tmp_path_factory.mktemp("site"))


def opened(folder: Path) -> Iterator[Site]:
    """Serve the page of all schedules at a few sizes."""
    played = tuple(gallery(ranks=(2, 4), microbatches=(2,)))
    for name, text in pages(played):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    with served(folder) as address:
        yield Site(address, played)


_READY = """new Promise((done) => { const look = () => document.body.dataset.ready === 'yes' &&
  window.playground.panels.every((x) => !x.order || x.part('frame').contentWindow?.pipesched?.ready) ?
  done(1) : setTimeout(look, 20);
  look(); })"""


@pytest.fixture
def visit(tab: Page, site: Site) -> Iterator[Any]:
    """Open the page with a fragment; at the end, nothing was asked of another server, and no error was logged."""

    def visited(fragment: str = "") -> Page:
        tab.visit("about:blank")
        tab.requests.clear()
        tab.complaints.clear()
        tab.size(1280, 1000)
        tab.visit(f"{site.address}index.html{fragment}")
        tab.evaluate(_READY)
        tab.settle()
        return tab

    yield visited
    assert tab.complaints == []
    assert all(x.startswith((site.address, "data:", "blob:", "about:")) for x in tab.requests)
    tab.visit("about:blank")


def said(page: Page, panel: int = 0) -> str:
    return str(page.evaluate(f"window.playground.panels[{panel}].part('verdict').textContent"))


# What the page plays.

_PLAYED = """(async (cases) => { const { decode, readCsv, play, memory, waits, faults } = window.playground, made = [];
  for (const { entry, csv, costs } of cases) {
    const order = entry ? await decode(entry) : readCsv(csv), t = play(order, costs), held = memory(order);
    const columns = ['kind', 'second', 'stage', 'microbatch'].map((name) => [name, [...order[name]]]);
    made.push({ ...Object.fromEntries(columns), needs: [...t.needs], further: t.further,
      begin: [...t.begin], end: [...t.end], stuck: t.stuck, peaks: held.peaks,
      cycle: t.cycle.map((x) => x.rank), held: [...held.held], faults: faults(order, t),
      idle: waits(order, t).map((x) => [x.work, x.idle, x.after, x.waits]) });
  }
  return JSON.stringify(made); })(%s)"""


def costs_of(rng: random.Random) -> tuple[str, dict[str, int]]:
    """Return random costs in quarters, as the product reads them and as the page has them in ticks."""
    ticks = {name: rng.randrange(0 if name == "C" else 1, 9) for name in ("F", "I", "W", "C")}
    ticks["B"] = rng.choice([ticks["I"] + ticks["W"], rng.randrange(1, 17)])
    text = ",".join(f"{name}={ticks[name]}/4" for name in ticks)
    if rng.random() < 0.4:
        ticks["FB"] = ticks["BF"] = rng.randrange(1, 25)
        text += f",FB={ticks['FB']}/4"
    return text, {**ticks, "R": ticks["F"]}


def csv_of(schedule: Schedule, rng: random.Random) -> str:
    """Return the computes of an order as a CSV, after some swaps of neighbours and jumps in the lists of ranks."""
    rows: list[list[str]] = []
    for rank in range(schedule.ranks):
        row: list[str] = []
        for i in range(int(schedule.start[rank]), int(schedule.start[rank + 1])):
            word = f"{schedule.stage[i]}{'FIWB'[schedule.op[i]]}{schedule.microbatch[i]}"
            row.append(f"({row.pop()};{word})OVERLAP_F_B" if schedule.joined[i] else word)
        rows.append(row)
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        row = rng.choice(rows)
        row.insert(rng.randrange(len(row)), row.pop(rng.randrange(len(row))))
    return "".join(",".join(row) + "\n" for row in rows)


ORDERS = [
    ("1f1b", {"p": 3, "m": 5}),
    ("gpipe", {"p": 2, "m": 4}),
    ("zb_h1", {"p": 4, "m": 6}),
    ("interleaved", {"p": 2, "v": 2, "m": 4}),
    ("zb_v", {"p": 3, "m": 6}),
    ("dualpipev", {"p": 3, "m": 6}),
]


def compared(found: dict[str, Any], drawn: Chart) -> None:
    """Hold what the page played against the analysis; the page's ticks are quarters."""
    times, schedule, memory = drawn.times, drawn.schedule, drawn.analysis.memory
    quarters = Fraction(4, drawn.scale)
    for name, column in (("begin", times.start), ("end", times.end)):
        assert found[name] == [x * quarters if x >= 0 else -1 for x in column.tolist()]
    assert found["stuck"] == list(times.stuck)
    needs = drawn.analysis.dependencies
    assert found["needs"] == needs.producer.tolist()
    further = zip(needs.further.producer.tolist(), needs.further.consumer.tolist(), strict=True)
    assert sorted(map(tuple, found["further"])) == sorted(further)
    assert [Fraction(x * schedule.ranks, schedule.stages) for x in found["peaks"]] == list(memory.peak)
    assert found["held"] == [memory.at(i) * schedule.stages / schedule.ranks for i in range(len(schedule))]
    whole = times.makespan * quarters
    for work, idle, after, waits in found["idle"]:
        assert work + idle == whole and after + sum(waits.values()) == idle
    stop = drawn.analysis.standstill
    assert len(found["cycle"]) == (len(stop.ranks) if stop is not None else 0)
    assert set(found["cycle"]) <= {rank for rank, at in enumerate(times.stuck) if at >= 0}


def played_alike(page: Page, cases: int, seed: int) -> int:
    """Compare random orders at random costs; return the number of orders that get stuck."""
    rng, asked, drawn = random.Random(seed), [], []
    orders = [pipesched.load(name, **sizes) for name, sizes in ORDERS]
    for _ in range(cases):
        csv = csv_of(rng.choice(orders), rng)
        text, ticks = costs_of(rng)
        asked.append({"csv": csv, "costs": ticks})
        drawn.append(chart(pipesched.load(pipesched.Source("mine.csv", csv)), Costs.parse(text)))
    for found, one in zip(json.loads(page.evaluate(_PLAYED % json.dumps(asked))), drawn, strict=True):
        compared(found, one)
    return sum(not one.times.finished for one in drawn)


def test_orders_are_played_as_the_analysis_does(visit: Any) -> None:
    """Times, memory, and the ranks that never end, of random orders, some of which get stuck."""
    cases = depth.deep(100)
    assert cases / 5 < played_alike(visit(), cases, seed=7) < cases


def test_the_gallery_has_the_orders_of_the_files(visit: Any, site: Site) -> None:
    """Every schedule at every size: the same operations, times and memory, no fault; others are named with a reason."""
    asked, drawn = [], []
    text, ticks = costs_of(random.Random(3))
    for one in site.played:
        assert bool(one.entries) != bool(one.refused)
        for entry in one.entries:
            asked.append({"entry": entry, "costs": ticks})
            sizes = entry["sizes"]
            assert isinstance(sizes, dict)
            drawn.append(chart(pipesched.load(one.name, **sizes), Costs.parse(text)))
    assert {x.name for x in site.played if x.refused} == {"packed", "pipeoffload", "skippipe"}
    for found, one in zip(json.loads(visit().evaluate(_PLAYED % json.dumps(asked))), drawn, strict=True):
        schedule = one.schedule
        assert found["kind"] == schedule.op.tolist() and found["second"] == schedule.joined.tolist()
        assert found["stage"] == schedule.stage.tolist() and found["microbatch"] == schedule.microbatch.tolist()
        assert found["faults"] == []
        compared(found, one)
    assert all({*entry["entry"].get("steps", ())} == one.stepped for entry, one in zip(asked, drawn, strict=True))


FROZEN = """schedule partly(p, m = 4)
stage s in 0 .. p on rank s
frozen s in 1 .. 2

rank r {
  repeat m { F }
  repeat m { I }
  if r != 1 { repeat m { W } }
}
"""


def test_a_frozen_stage_frees_at_its_input_gradient(visit: Any) -> None:
    """A stage in the middle that is not trained has no W, and its I frees what its F took."""
    schedule = pipesched.load(pipesched.Source("partly.ps", FROZEN), p=3)
    text, ticks = costs_of(random.Random(5))
    (found,) = json.loads(visit().evaluate(_PLAYED % json.dumps([{"entry": entry_of(schedule), "costs": ticks}])))
    assert found["faults"] == [] and max(found["held"]) == 4
    compared(found, chart(schedule, Costs.parse(text)))


@pytest.mark.parametrize(
    ("csv", "fault"),
    [
        ("0F0,0B0\n1F0\n", "stage 1 never runs I of microbatch 0; and 1 more"),
        ("0F0,0F0,0B0\n1F0,1B0\n", "F0.0 on rank 0 comes after F0.0, which did the same"),
        ("0F0,0W0,0I0\n1F0,1I0,1W0\n", "W0.0 on rank 0 comes before I0.0, whose result it uses"),
        (
            "0F1,0F0,0B0,0B1\n1F1,1B1,1F0,1B0\n",
            "F1.0 comes after F1.1: torch pairs losses with microbatches by position",
        ),
    ],
)
def test_a_fault_is_named(visit: Any, csv: str, fault: str) -> None:
    """Results that are missing, made twice or used too early are named, though no rank waits; `verify` fails too."""
    page = visit()
    page.evaluate(f"window.playground.panels[0].change({{ csv: {json.dumps(csv)}, file: 'mine.csv', moves: [] }})")
    assert said(page).startswith(f"wrong: {fault}")
    assert not pipesched.verify(pipesched.Source("mine.csv", csv)).ok


@pytest.mark.parametrize(
    ("csv", "why"),
    [
        ("0F0,0SEND_F0\n1RECV_F0,1F0\n", "rank 0: 0SEND_F0 is no compute such as 0F1"),
        ("0F0,1F0\n1B0\n", "rank 1: 1B0 is of stage 1, which is on rank 0"),
        ("0F0\n2F0\n", "stage 1 is on no rank, though stage 2 is on rank 1"),
        ("\n\n", "no row has an operation"),
        ("\ufeff0F0;0B0\r\n1F0;1B0\r\n", "rank 0: 0F0;0B0 is not one cell: put commas between cells"),
        ("\x00\x01", "is no compute"),
    ],
)
def test_what_is_no_order_of_computes_is_refused(visit: Any, csv: str, why: str) -> None:
    """The rank and the cell are named, and the page goes on."""
    page = visit()
    page.evaluate(f"window.playground.panels[0].change({{ csv: {json.dumps(csv)}, file: 'mine.csv', moves: [] }})")
    assert said(page).startswith("refused: ") and why in said(page)
    page.evaluate("window.playground.panels[0].change({ csv: null, name: 'gpipe' })")
    assert said(page).startswith("ok")


# What a reader does.


def drop(page: Page, name: str, text: str) -> None:
    """Drop a file on the first schedule."""
    page.evaluate(
        f"""(async () => {{ const data = new DataTransfer(), panel = window.playground.panels[0];
        data.items.add(new File([{json.dumps(text)}], {json.dumps(name)}));
        panel.root.dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, bubbles: true, cancelable: true }}));
        while (panel.state.file !== {json.dumps(name)} || !panel.order)
          await new Promise((done) => setTimeout(done, 10)); }})()"""
    )
    page.evaluate(_READY)
    page.settle()


def drag(page: Page, chip: str, before: str) -> None:
    """Drag an operation of the list to another of the same rank, with the pointer."""
    middle = "[...document.querySelectorAll('.chip')].filter((x) => x.textContent === %s).map((x) => \
        [x.getBoundingClientRect()]).map(([b]) => [b.x + b.width / 2, b.y + b.height / 2])[0]"
    (x0, y0), (x1, y1) = (page.evaluate(middle % json.dumps(name)) for name in (chip, before))
    page.mouse("mouseMoved", x0, y0)
    page.mouse("mousePressed", x0, y0, button="left", clickCount=1)
    page.mouse("mouseMoved", x1, y1, button="left", buttons=1)
    page.mouse("mouseReleased", x1, y1, button="left", clickCount=1)
    page.settle()
    page.evaluate(_READY)


def test_a_hanging_csv_is_mended_by_hand(visit: Any) -> None:
    """Its two ranks are named and drawn; an operation is dragged, and the order is ok, as `verify` says of the CSV."""
    page = visit()
    assert not pipesched.verify(pipesched.Source("hang.csv", HANGING)).ok
    drop(page, "hang.csv", HANGING)
    assert said(page).startswith("deadlock: ranks 0 and 1 wait for each other\nrank 0 stops at B0.0 (step 2)")
    inner = "window.playground.panels[0].part('frame').contentWindow.pipesched.meta"
    assert page.evaluate(f"{inner}.stops.map((x) => [x.rank, x.cycle])") == [[0, True], [1, True]]
    page.evaluate("window.playground.panels[0].part('edit').click()")
    page.settle()
    assert page.evaluate("[...document.querySelectorAll('.chip.stuck')].map((x) => x.textContent)") == ["B0.0", "F1.1"]
    drag(page, "F0.1", "B0.0")
    assert said(page).startswith("ok")
    mended = page.evaluate("window.playground.writeCsv(window.playground.panels[0].order)")
    assert mended == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
    assert pipesched.verify(pipesched.Source("mended.csv", mended)).ok


def test_keys_move_an_operation(visit: Any) -> None:
    """Alt and an arrow move the focused operation by a place, there and back."""
    page = visit("#a=1f1b,2,,4")
    csv = "window.playground.writeCsv(window.playground.panels[0].order)"
    before = page.evaluate(csv)
    page.evaluate("window.playground.panels[0].edit(true)")
    page.evaluate("document.querySelectorAll('.chip')[1].focus()")
    for key in ("ArrowRight", "ArrowLeft"):
        page.call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=1)
        page.settle()
        assert (page.evaluate(csv) == before) == (key == "ArrowLeft")


LINKS = [
    "#F=2&I=1&W=0.5&C=0.25&a=zb_h1,4,,8",
    "#a=interleaved,4,2,8&b=1f1b,4,,8",
    "#a=dualpipe,4,,8&FB=2.5",
    "#a=1f1b,4,,8&a.moves=3-1_40-38",
    "csv",
]


@pytest.mark.parametrize("link", depth.some(LINKS, 1, usual=2))
def test_a_link_shows_what_was_shown(visit: Any, link: str) -> None:
    """The page gives a link to what it shows, and the link shows the same: schedules, sizes, costs, moves, files."""
    page = visit("" if link == "csv" else link)
    if link == "csv":
        drop(page, "hang.csv", HANGING)
    shown = """JSON.stringify([playground.costsNow(), playground.panels.map((x) => [x.state.csv, x.state.name,
        x.sizes, [...x.order.kind], [...x.order.microbatch], [...x.times.end]])])"""
    first = page.evaluate(shown)
    page.evaluate("document.getElementById('link').click()")
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    fragment = page.evaluate("location.hash")
    assert len(fragment) > 10
    assert visit(fragment).evaluate(shown) == first


def test_a_damaged_link_is_said(visit: Any) -> None:
    """The page opens with a schedule all the same."""
    for link in ("#a=nothing,4,,8", "#a.csv=x|!!", "#a=1f1b,4,,8&a.moves=9999-0", "#F=abc&a=gpipe,x,y,z"):
        page = visit(link)
        assert said(page), link
        assert page.evaluate("document.getElementById('panels').children.length") == 1


def test_a_cost_that_cannot_be_played_is_said(visit: Any) -> None:
    """A link with a finer or a negative cost shows the usual one in its field, plays it, and says so."""
    for cost in ("0.0001", "-1"):
        page = visit(f"#F={cost}&a=gpipe,2,,4")
        assert page.evaluate("document.getElementById('cost-F').value") == "1"
        assert page.evaluate("playground.costsNow().ticks.F / playground.costsNow().scale") == 1
        assert "cost of F is not a number" in page.evaluate("document.getElementById('said').textContent")


def test_two_schedules_share_their_axis(visit: Any) -> None:
    """A tick is as wide in both pictures, so that their lengths can be compared; sliders change sizes and redraw."""
    page = visit("#a=gpipe,4,,8&b=zb_h1,4,,8")
    wide = "playground.panels.map((x) => x.part('frame').contentWindow.pipesched.view.perPixel)"
    one, two = page.evaluate(wide)
    assert one == two
    page.evaluate(
        "(() => { const slider = document.querySelector('input.p'); slider.value = 0;"
        "slider.dispatchEvent(new Event('input')); })()"
    )
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    page.evaluate(_READY)
    assert page.evaluate("playground.panels.map((x) => x.sizes.p)") == [2, 4]
    assert "makespan" in said(page)


def main(cases: int) -> None:
    """Compare so many random cases: `python -m tests.playground.test_play 500`."""
    with TemporaryDirectory() as folder, browser(Path(folder)) as page:
        for place in opened(Path(folder, "site").absolute()):
            page.visit(f"{place.address}index.html")
            page.evaluate(_READY)
            stuck = played_alike(page, cases, seed=cases)
            print(f"{cases} random orders, {stuck} of them stuck: all as the analysis has them")


if __name__ == "__main__":
    main(int(sys.argv[1]))
