// Plots as SVG. Series differ by colour, dash and mark, and every plot has its numbers as a table.

const N_COLOURS = 8;
const MARKS = ["circle", "square", "diamond", "triangle"];

/** Redraw a plot at the width that it has. draw: width in pixels to an SVG element. */
function responsive(draw) {
  const place = h("div", { class: "plot" });
  let shown = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width < 40 || width === shown) return;
    shown = width;
    place.replaceChildren(draw(width));
  }).observe(place);
  return place;
}

/** Round numbers between low and high, about n of them. */
function ticks(low, high, n) {
  const rough = (high - low) / Math.max(1, n) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= 0.8 * rough) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step);
}

function tidy(value) {
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5))
    return value.toExponential(Number.isInteger(Math.log10(Math.abs(value))) ? 0 : 1);
  return String(Number(value.toPrecision(4)));
}

/** A mark of a series at a point. */
function mark4(series, x, y, size = 4) {
  const kind = MARKS[series % MARKS.length];
  const name = `mark c${series % N_COLOURS}`;
  if (kind === "circle") return s("circle", { cx: x, cy: y, r: size, class: name });
  if (kind === "square") return s("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, class: name });
  const r = size * 1.25;
  const corners =
    kind === "diamond"
      ? [
          [0, -r],
          [r, 0],
          [0, r],
          [-r, 0],
        ]
      : [
          [0, -r],
          [r, r * 0.8],
          [-r, r * 0.8],
        ];
  return s("polygon", { points: corners.map(([dx, dy]) => `${x + dx},${y + dy}`).join(" "), class: name });
}

function legend(names, shape) {
  return h(
    "ul",
    { class: "legend" },
    names.map((name, i) => h("li", null, swatch(i, shape), inline(name))),
  );
}

function swatch(i, shape) {
  const inside = {
    line: () => [s("line", { x1: 0, x2: 22, y1: 6, y2: 6, class: `line c${i % N_COLOURS} dash${i % 4}` }), mark4(i, 11, 6, 3)],
    mark: () => [mark4(i, 11, 6, 4)],
  }[shape]();
  return s("svg", { width: 22, height: 12, "aria-hidden": "true" }, inside);
}

/**
 * Horizontal intervals, a row for each item: {name, value, interval, note, series}.
 * options: label (for people who do not see it), low, high, zero (draw a line there), form (a value as text), tick (the same on the axis).
 */
function intervals(items, options) {
  const row = items.length > 6 ? 24 : 30;
  const draw = (width) => {
    const left = Math.min(width * 0.42, 230);
    const right = width < 420 ? 24 : 150;
    const height = items.length * row + 26;
    const x = (value) => left + ((value - options.low) / (options.high - options.low)) * (width - left - right);
    const svg = s("svg", { width, height, role: "img", "aria-label": options.label });
    for (const tick of ticks(options.low, options.high, (width - left - right) / 70)) {
      svg.append(
        s("line", { x1: x(tick), x2: x(tick), y1: 0, y2: height - 22, class: options.zero && Math.abs(tick) < 1e-9 ? "zero" : "grid" }),
        s("text", { x: x(tick), y: height - 8, class: "tick", "text-anchor": "middle" }, (options.tick ?? options.form)(tick)),
      );
    }
    items.forEach((item, i) => svg.append(intervalRow(item, i * row + row / 2, { x, left, width, right, form: options.form })));
    return svg;
  };
  return responsive(draw);
}

function intervalRow(item, y, place) {
  const { x, left, width, right, form } = place;
  const group = s("g", null, s("title", null, `${item.name}: ${form(item.value)} ${range(item.interval, form)} ${item.note}`));
  group.append(s("text", { x: left - 10, y: y + 4, "text-anchor": "end", class: "name" }, shorten(item.name, left / 7)));
  if (item.interval) {
    const [low, high] = item.interval.map(x);
    group.append(s("line", { x1: low, x2: high, y1: y, y2: y, class: `whisker c${item.series % N_COLOURS}` }));
    for (const end of [low, high])
      group.append(s("line", { x1: end, x2: end, y1: y - 5, y2: y + 5, class: `whisker c${item.series % N_COLOURS}` }));
  }
  if (known(item.value)) group.append(mark4(item.series, x(item.value), y, 5));
  if (right > 40) group.append(s("text", { x: width - right + 14, y: y + 4, class: "value" }, `${form(item.value)} · ${item.note}`));
  return group;
}

function shorten(text, length) {
  const plain = text.replace(HIDDEN, nameOf);
  return plain.length <= length ? plain : `${plain.slice(0, Math.max(1, Math.floor(length) - 1))}…`;
}

/** A bar of parts that add up: [[name, class, count]]. */
function stacked(parts, what) {
  const total = parts.reduce((sum, [, , n]) => sum + n, 0) || 1;
  const words = parts.filter(([, , n]) => n).map(([name, , n]) => `${name} ${count(n)} (${percent(n / total)})`);
  const draw = (width) => {
    const svg = s("svg", { width, height: 18, role: "img", "aria-label": `${what}: ${words.join(", ")}` });
    let from = 0;
    for (const [name, kind, n] of parts) {
      if (!n) continue;
      const size = (n / total) * width;
      svg.append(
        s(
          "rect",
          { x: from, y: 0, width: Math.max(1, size - 1), height: 18, class: `part ${kind}` },
          s("title", null, `${name}: ${count(n)}`),
        ),
      );
      const shown = size > 9 * name.length ? name : size > 14 ? name[0] : "";
      svg.append(s("text", { x: from + size / 2, y: 13, "text-anchor": "middle", class: `part-name ${kind}` }, shown));
      from += size;
    }
    return svg;
  };
  return responsive(draw);
}
