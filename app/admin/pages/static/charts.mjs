// Charts: bars and lines from the table with the same figures, and a line of the rate of a live
// figure.
const { uPlot } = globalThis;
const HEIGHT = 220;
const drawn = new Map();
const MAX_POINTS = 400;
const SOON_S = 1;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const axis = (more = {}) => ({ stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ...more });
const width = (element) => Math.max(200, element.clientWidth);

function counted(element) {
  const rows = [...document.querySelectorAll(`#${element.dataset.bars} tbody tr`)];
  const labels = rows.map((row) => row.cells[0].textContent);
  const counts = rows.map((row) => Number(row.cells[1].textContent.replaceAll(",", "")));
  return { labels, data: [labels.map((_, n) => n), counts] };
}

function bars(element) {
  const { labels, data } = counted(element);
  return new uPlot({
    width: width(element), height: HEIGHT, legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, range: [-0.6, labels.length - 0.4] }, y: { range: (_, __, most) => [0, most || 1] } },
    axes: [axis({ values: (_, at) => at.map((n) => labels[n] ?? ""), splits: () => labels.map((_, n) => n), rotate: -45, size: 60 }), axis()],
    series: [{}, { fill: colour("--accent"), stroke: colour("--accent"), paths: uPlot.paths.bars({ size: [0.7, 60] }), points: { show: false } }],
  }, data, element);
}

function lines(element, data) {
  const first = { stroke: colour("--accent"), width: 2, fill: colour("--line") };
  return new uPlot({
    width: width(element), height: HEIGHT, legend: { show: false }, cursor: { show: false },
    scales: { y: { range: (_, __, most) => [0, most || 1] } },
    axes: [axis(), axis()],
    series: [{}, first, { stroke: colour("--bad"), width: 2 }].slice(0, data.length),
  }, data, element);
}

/** The columns of a table whose rows have times; an empty cell is a gap. */
function columns({ dataset }) {
  const rows = [...document.querySelectorAll(`#${dataset.series} tbody tr[data-at]`)];
  const of = (column) => rows.map(({ cells }) => (cells[column].textContent ? Number(cells[column].textContent) : null));
  return [rows.map((row) => Number(row.dataset.at)), ...dataset.columns.split(" ").map(of)];
}

/** Rates of a refreshed total, from one reading to the next. */
function follow(element) {
  const seen = [[], []];
  let before = null;
  const look = () => {
    const total = Number(document.getElementById(element.dataset.rate).dataset.total);
    const now = Date.now() / 1000;
    if (before && now - before.now < SOON_S) return; // another region was renewed
    if (before) {
      seen[0].push(now);
      seen[1].push(Math.max(0, (total - before.total) / (now - before.now)));
      seen.forEach((each) => each.splice(0, each.length - MAX_POINTS));
    }
    before = { total, now };
  };
  look();
  addEventListener("portolan:renewed", () => { look(); drawn.get(element)?.setData(seen); });
  return () => lines(element, seen);
}

addEventListener("portolan:renewed", () => {
  for (const [element, chart] of drawn) {
    if (element.dataset.bars) chart.setData(counted(element).data);
    if (element.dataset.series) chart.setData(columns(element));
  }
});

const makers = new Map();
for (const element of document.querySelectorAll(".chart")) {
  const { rate, series } = element.dataset;
  makers.set(element, rate ? follow(element) : () => (series ? lines(element, columns(element)) : bars(element)));
}

function draw() {
  for (const [element, make] of makers) {
    drawn.get(element)?.destroy();
    drawn.set(element, make());
  }
}
draw();
addEventListener("portolan:theme", draw);
addEventListener("resize", () => drawn.forEach((chart, element) => chart.setSize({ width: width(element), height: HEIGHT })));
