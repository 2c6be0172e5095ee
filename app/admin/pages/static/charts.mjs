// Charts: bars and lines from the table with the same figures, and the rate of a live total as a line.
const { uPlot } = globalThis;
const HEIGHT = 220;
const charts = new Map();
const MAX_POINTS = 400;
const MIN_INTERVAL_S = 1;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const axis = (options = {}) => ({ stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ...options });
/** The time axis in UTC, like all times on the pages. */
const timeAxis = () => axis({
  space: 70,
  values: (_, splits, __, ___, stepS) => splits.map((s) => new Date(1000 * s).toISOString().slice(11, stepS < 60 ? 19 : 16)),
});
const width = (element) => Math.max(200, element.clientWidth);

function barData(element) {
  const rows = [...document.querySelectorAll(`#${element.dataset.bars} tbody tr`)];
  const labels = rows.map((row) => row.cells[0].textContent);
  const counts = rows.map((row) => Number(row.cells[1].textContent.replaceAll(",", "")));
  return { labels, data: [labels.map((_, n) => n), counts] };
}

function bars(element) {
  const { labels, data } = barData(element);
  return new uPlot({
    width: width(element), height: HEIGHT, legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, range: [-0.6, labels.length - 0.4] }, y: { range: (_, __, maximum) => [0, maximum || 1] } },
    axes: [axis({ values: (_, splits) => splits.map((n) => labels[n] ?? ""), splits: () => labels.map((_, n) => n), rotate: -45, size: 60 }), axis()],
    series: [{}, { fill: colour("--accent"), stroke: colour("--accent"), paths: uPlot.paths.bars({ size: [0.7, 60] }), points: { show: false } }],
  }, data, element);
}

function lines(element, data) {
  const firstSeries = { stroke: colour("--accent"), width: 2, fill: colour("--line") };
  return new uPlot({
    width: width(element), height: HEIGHT, legend: { show: false }, cursor: { show: false },
    scales: { y: { range: (_, __, maximum) => [0, maximum || 1] } },
    axes: [timeAxis(), axis()],
    series: [{}, firstSeries, { stroke: colour("--bad"), width: 2 }].slice(0, data.length),
  }, data, element);
}

/** Returns the times of a table's rows, and its columns; an empty cell is a gap. */
function columns({ dataset }) {
  const rows = [...document.querySelectorAll(`#${dataset.series} tbody tr[data-at]`)];
  const values = (column) => rows.map(({ cells }) => (cells[column].textContent ? Number(cells[column].textContent) : null));
  return [rows.map((row) => Number(row.dataset.at)), ...dataset.columns.split(" ").map(values)];
}

/** Charts the rate of a refreshed total, between successive samples. */
function follow(element) {
  const points = [[], []];
  let previous = null;
  const sample = () => {
    const total = Number(document.getElementById(element.dataset.rate).dataset.total);
    const now = Date.now() / 1000;
    if (previous && now - previous.now < MIN_INTERVAL_S) return; // the event is of another region
    if (previous) {
      points[0].push(now);
      points[1].push(Math.max(0, (total - previous.total) / (now - previous.now)));
      points.forEach((column) => column.splice(0, column.length - MAX_POINTS));
    }
    previous = { total, now };
  };
  sample();
  addEventListener("portolan:renewed", () => { sample(); charts.get(element)?.setData(points); });
  return () => lines(element, points);
}

addEventListener("portolan:renewed", () => {
  for (const [element, chart] of charts) {
    if (element.dataset.bars) chart.setData(barData(element).data);
    if (element.dataset.series) chart.setData(columns(element));
  }
});

const factories = new Map();
for (const element of document.querySelectorAll(".chart")) {
  const { rate, series } = element.dataset;
  factories.set(element, rate ? follow(element) : () => (series ? lines(element, columns(element)) : bars(element)));
}

function draw() {
  for (const [element, create] of factories) {
    charts.get(element)?.destroy();
    charts.set(element, create());
  }
}
draw();
addEventListener("portolan:theme", draw);
addEventListener("resize", () => charts.forEach((chart, element) => chart.setSize({ width: width(element), height: HEIGHT })));
