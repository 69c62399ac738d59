// Curves of a training run: lines with intervals, points, stacked shares.

const PLOT = { left: 46, right: 12, top: 8, bottom: 34, height: 210 };

/** One chart with its legend and its numbers. chart: as longrein.report.curves.Chart. */
function curve(chart) {
  const names = [...new Set(chart.lines.map((line) => line.name))];
  const draw = (width) => (chart.scale === "stack" ? stack(chart, width) : lines(chart, names, width));
  const key =
    chart.scale === "stack"
      ? h(
          "ul",
          { class: "legend" },
          names.map((name) => h("li", null, label(name))),
        )
      : legend(names, "line");
  return section(chart.title, chart.note, responsive(draw), names.length > 1 || chart.scale === "stack" ? key : null, numbers(chart));
}

function lines(chart, names, width) {
  const scales = scalesOf(chart, width);
  const svg = frame(chart, width, scales);
  for (const [name, value] of Object.entries(chart.bounds)) svg.append(bound(name, value, width, scales));
  for (const line of chart.lines) {
    const series = names.indexOf(line.name);
    const colour = `c${series % N_COLOURS}`;
    const at = (point) => [scales.x(point[0]), scales.y(point[1])];
    if (!line.dots && line.points[0].length > 2) svg.append(s("polygon", { points: band(line.points, scales), class: `band ${colour}` }));
    if (!line.dots)
      svg.append(
        s("polyline", { points: line.points.map((point) => at(point).join()).join(" "), class: `line ${colour} dash${series % 4}` }),
      );
    for (const point of line.points) svg.append(dot(line, point, series, scales));
  }
  return svg;
}

function dot(line, point, series, scales) {
  const x = scales.x(point[0]) + (line.dots ? 5 * series : 0); // intervals at one step stand side by side
  const y = scales.y(point[1]);
  const group = s(
    "g",
    null,
    s(
      "title",
      null,
      `${line.name} at ${tidy(point[0])}: ${scales.form(point[1])} ${range(point.length > 2 ? point.slice(2) : null, scales.form).replace("–", "")}`,
    ),
  );
  if (line.dots && point.length > 2)
    group.append(s("line", { x1: x, x2: x, y1: scales.y(point[2]), y2: scales.y(point[3]), class: `whisker c${series % N_COLOURS}` }));
  group.append(mark4(series, x, y, line.dots ? 5 : 2.5));
  return group;
}

function band(list, scales) {
  const upper = list.map((point) => `${scales.x(point[0])},${scales.y(point[3])}`);
  const lower = list.map((point) => `${scales.x(point[0])},${scales.y(point[2])}`);
  return [...upper, ...lower.reverse()].join(" ");
}

function scalesOf(chart, width) {
  const all = chart.lines.flatMap((line) => line.points);
  const xs = all.map((point) => point[0]);
  const ys = [...all.flatMap((point) => point.slice(1)), ...Object.values(chart.bounds)];
  const [x0, x1] = spread(Math.min(...xs), Math.max(...xs), chart.scale === "stack" ? 0.6 : 0);
  const x = (value) => PLOT.left + ((value - x0) / (x1 - x0)) * (width - PLOT.left - PLOT.right);
  const share = chart.scale === "share" || chart.scale === "stack";
  const log = chart.scale === "log";
  const to = log ? (value) => Math.log10(Math.max(value, 1e-12)) : (value) => value;
  const [y0, y1] = share
    ? [0, 1]
    : log
      ? [Math.floor(Math.min(...ys.map(to))), Math.ceil(Math.max(...ys.map(to)))]
      : padded(Math.min(...ys), Math.max(...ys));
  const y = (value) => PLOT.height - PLOT.bottom - ((to(value) - y0) / (y1 - y0 || 1)) * (PLOT.height - PLOT.bottom - PLOT.top);
  return { x, y, x0, x1, y0, y1, log, form: share ? percent : tidy };
}

function spread(low, high, room) {
  return low === high ? [low - 1, high + 1] : [low - room, high + room];
}

function padded(low, high) {
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low >= 0 && low < high ? Math.max(0, low - room) : low - room, high + room];
}

function frame(chart, width, scales) {
  const bottom = PLOT.height - PLOT.bottom;
  const svg = s("svg", {
    width,
    height: PLOT.height,
    role: "img",
    "aria-label": `${chart.title}: ${chart.y} by ${chart.x}. The numbers are in the table below it.`,
  });
  const whole = (list) => list.filter((value) => Number.isInteger(Number(value.toFixed(6))));
  for (const tick of whole(ticks(scales.x0, scales.x1, width / 80)))
    svg.append(s("text", { x: scales.x(tick), y: bottom + 15, class: "tick", "text-anchor": "middle" }, tidy(tick)));
  const values = scales.log
    ? ticks(scales.y0, scales.y1, 5)
        .filter(Number.isInteger)
        .map((power) => 10 ** power)
    : ticks(scales.y0, scales.y1, 4);
  for (const tick of values) {
    const y = scales.y(tick);
    svg.append(s("line", { x1: PLOT.left, x2: width - PLOT.right, y1: y, y2: y, class: "grid" }));
    svg.append(
      s(
        "text",
        { x: PLOT.left - 6, y: y + 4, class: "tick", "text-anchor": "end" },
        scales.form === percent ? wholePercent(tick) : tidy(tick),
      ),
    );
  }
  svg.append(s("text", { x: (PLOT.left + width) / 2, y: PLOT.height - 4, class: "tick axis", "text-anchor": "middle" }, chart.x));
  return svg;
}

function bound(name, value, width, scales) {
  const y = scales.y(value);
  return s(
    "g",
    null,
    s("line", { x1: PLOT.left, x2: width - PLOT.right, y1: y, y2: y, class: "bound" }),
    s("text", { x: width - PLOT.right, y: y - 4, class: "tick bound-name", "text-anchor": "end" }, `${name} ${tidy(value)}`),
  );
}

function stack(chart, width) {
  const scales = scalesOf(chart, width);
  const svg = frame(chart, width, scales);
  const steps = [...new Set(chart.lines.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
  const size = Math.max(1, Math.min(28, (width - PLOT.left - PLOT.right) / steps.length - 1));
  const from = new Map(steps.map((step) => [step, 0]));
  for (const line of chart.lines)
    for (const [step, share] of line.points) {
      const low = from.get(step);
      const x = scales.x(step) - size / 2;
      const bar = {
        x: Math.max(PLOT.left, Math.min(x, width - PLOT.right - size)),
        y: scales.y(low + share),
        width: size,
        height: scales.y(low) - scales.y(low + share),
      };
      svg.append(s("rect", { ...bar, class: `part ${line.name}` }, s("title", null, `${line.name} at ${tidy(step)}: ${percent(share)}`)));
      from.set(step, low + share);
    }
  return svg;
}

function numbers(chart) {
  const form = chart.scale === "share" || chart.scale === "stack" ? percent : tidy;
  const details = h("details", { class: "numbers" }, h("summary", null, "Numbers"));
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const rows = chart.lines.flatMap((line) =>
      line.points.map((point) => [line.name, tidy(point[0]), form(point[1]), range(point.length > 2 ? point.slice(2) : null, form)]),
    );
    details.append(table([["series"], [chart.x, "n"], [chart.y, "n"], ["95 % interval", "n"]], rows));
  });
  return details;
}
