// Elements and text. Whatever an agent wrote becomes a text node, never markup; characters that hide or reorder text are shown by name.

const SVG = "http://www.w3.org/2000/svg";
const MOST_MARKS = 2000;
// terminal escapes; lone surrogates; controls but tab and newline; soft hyphen, bidi controls, separators, other invisible ones
const HIDDEN =
  /\x1b\[[0-9;?]*[ -\/]*[@-~]|\p{Cs}|[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;

/** Make an element. attributes: `on` holds listeners, `class` and others are set as they are; null and false are left out. */
function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Return a text as nodes in which nothing is hidden. */
function visible(text) {
  const plain = String(text ?? "").replace(/\r\n/g, "\n");
  const nodes = [];
  let from = 0;
  for (const match of plain.matchAll(HIDDEN)) {
    if (nodes.length >= MOST_MARKS) break;
    nodes.push(plain.slice(from, match.index), mark(match[0]));
    from = match.index + match[0].length;
  }
  nodes.push(plain.slice(from).replace(HIDDEN, nameOf));
  return nodes;
}

function mark(hidden) {
  return h("span", { class: "hidden-character", title: `U+${code(hidden)}` }, nameOf(hidden));
}

function nameOf(hidden) {
  const point = hidden.codePointAt(0);
  if (point < 0x20) return String.fromCodePoint(0x2400 + point) + hidden.slice(1);
  return point === 0x7f ? "␡" : `⟨${code(hidden)}⟩`;
}

function code(text) {
  return text.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

/** A block of untrusted text. */
function pre(text, name = "") {
  return h("pre", { class: `text ${name}`, dir: "auto" }, visible(text));
}

/** Untrusted text within a line. */
function inline(text, name = "") {
  return h("bdi", { class: name || null }, visible(text));
}

const SIGNS = { passed: "✓", failed: "✗", unscorable: "?" };

function verdict(status) {
  return h("span", { class: `verdict ${status}` }, h("span", { "aria-hidden": "true" }, SIGNS[status] ?? "?"), ` ${status}`);
}

function label(name) {
  return h("span", { class: `label ${name}` }, name);
}

function button(text, click, attributes = {}) {
  return h("button", { type: "button", on: { click }, ...attributes }, text);
}

/** A table. columns: [title, kind] where kind "n" aligns numbers; rows: arrays of nodes or texts. */
function table(columns, rows, attributes = {}) {
  const head = columns.map(([title, kind]) => h("th", { scope: "col", class: kind || null }, visible(title)));
  const cell = (value, at) =>
    h("td", { class: columns[at][1] || null }, value instanceof Node || Array.isArray(value) ? value : visible(value ?? "–"));
  const body = rows.map((row) => h("tr", null, row.map(cell)));
  return h("div", { class: "scroll" }, h("table", attributes, h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

function section(title, note, ...children) {
  return h("section", { class: "card" }, h("h2", null, title), note ? h("p", { class: "note" }, note) : null, children);
}

const known = (value) => typeof value === "number" && Number.isFinite(value);
const count = (value) => (known(value) ? value.toLocaleString("en-US") : "–");
const wholePercent = (value) => `${Math.round(100 * value)} %`;
const percent = (value) => (known(value) ? `${(100 * value).toFixed(1)} %` : "–");
const points = (value) => (known(value) ? `${value > 0 ? "+" : ""}${(100 * value).toFixed(1)}` : "–");
const seconds = (value) => (known(value) ? (value < 10 ? `${value.toFixed(2)} s` : `${value.toFixed(0)} s`) : "–");
const decimals = (value, n = 2) => (known(value) ? value.toFixed(n) : "–");
const range = (bounds, form) => (bounds ? `[${form(bounds[0])}, ${form(bounds[1])}]` : "–");
