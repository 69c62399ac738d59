// What the filter selects: the filter itself, tasks by agents, and the list of rollouts.

const ROLLOUTS = 100;
const TASKS = 50;

/** Fill the filter form. */
function filterForm(form, state, changed) {
  const fields = FILTERS.filter(([name]) => state.choices[name].length > 1).map(([name, title]) => {
    const options = state.choices[name].map(([value, n]) => h("option", { value }, `${value || "(none)"} (${n.toLocaleString("en-US")})`));
    const select = h(
      "select",
      { name, on: { change: (event) => changed(name, event.target.value) } },
      h("option", { value: "" }, "all"),
      options,
    );
    return h("label", null, h("span", null, title), select);
  });
  const search = h("input", {
    type: "search",
    name: "text",
    placeholder: "task, id or reason",
    autocomplete: "off",
    on: { input: (event) => changed("text", event.target.value) },
  });
  form.replaceChildren(
    ...fields,
    h("label", { class: "search" }, h("span", null, "Find (/)"), search),
    button("Clear", () => changed(null), { class: "clear" }),
    h("output", { class: "selected" }),
  );
  form.addEventListener("submit", (event) => event.preventDefault());
}

/** Make the form show the filter as it is. */
function syncForm(form, state) {
  for (const [name] of [...FILTERS, ["text"]])
    if (form.elements[name] && form.elements[name].value !== state.filter[name]) form.elements[name].value = state.filter[name];
  form.querySelector(".clear").disabled = !Object.values(state.filter).some(Boolean);
  const counts = { passed: 0, failed: 0, unscorable: 0 };
  for (const number of state.selected) counts[state.lines[number].status]++;
  const scored = counts.passed + counts.failed;
  const words = Object.entries(counts)
    .filter(([, n]) => n)
    .map(([status, n]) => h("span", { class: `verdict ${status}` }, `${SIGNS[status]} ${count(n)} ${status}`));
  form
    .querySelector("output")
    .replaceChildren(
      `${count(state.selected.length)} of ${count(state.lines.length)} rollouts`,
      ...words,
      scored ? `${percent(counts.passed / scored)} passed` : "",
    );
}

/** Tasks in rows, agents in columns, a mark for each rollout. */
function matrix(state) {
  const columns = [...new Set(state.selected.map((number) => columnOf(state.lines[number])))].sort();
  const tasks = new Map();
  for (const number of state.selected) {
    const line = state.lines[number];
    const row = tasks.get(line.task) ?? tasks.set(line.task, new Map()).get(line.task);
    (row.get(columnOf(line)) ?? row.set(columnOf(line), []).get(columnOf(line))).push(number);
  }
  const names = [...tasks.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const row = (task) => [inline(task, "task"), ...columns.map((column) => marks(tasks.get(task).get(column) ?? [], state))];
  return paged(
    names,
    (shown) => table([["task"], ...columns.map((column) => [column])], shown.map(row), { class: "matrix" }),
    TASKS,
    "tasks",
  );
}

function columnOf(line) {
  return line.policy ? `${line.agent} · ${line.policy}` : line.agent;
}

function marks(numbers, state) {
  const passed = numbers.filter((number) => state.lines[number].status === "passed").length;
  const scored = numbers.filter((number) => state.lines[number].status !== "unscorable").length;
  const ordered = [...numbers].sort((a, b) => compare(state.lines[a], state.lines[b], (line) => `${line.phase} ${line.sample}`));
  const cells = ordered.map((number) => {
    const line = state.lines[number];
    const words = `${line.agent}, ${line.task}, sample ${line.sample}, ${line.phase}: ${line.status}, ${line.outcome}`;
    return h(
      "a",
      { class: `cell ${line.status}`, href: state.address(number), title: words, "aria-label": words },
      SIGNS[line.status] ?? "?",
    );
  });
  return h("div", { class: "cells" }, cells, h("span", { class: "share" }, scored ? `${passed}/${scored}` : ""));
}

/** Show a long list a part at a time. */
function paged(items, draw, size, what) {
  const place = h("div");
  const show = (n) => {
    const more =
      items.length > n
        ? button(`Show ${count(Math.min(size, items.length - n))} more of ${count(items.length)} ${what}`, () => show(n + size), {
            class: "more",
          })
        : null;
    place.replaceChildren(draw(items.slice(0, n)), ...(more ? [more] : []));
  };
  show(size);
  return place;
}

const COLUMNS = [
  ["verdict", "", (line) => line.status],
  ["task", "", (line) => line.task],
  ["agent", "", (line) => columnOf(line)],
  ["sample", "n", (line) => line.sample],
  ["phase", "", (line) => line.phase],
  ["outcome", "", (line) => line.outcome],
  ["reward", "n", (line) => line.reward],
  ["calls", "n", (line) => line.calls],
  ["labels", "", (line) => Object.keys(line.labels).join(" ")],
  ["sampled", "n", (line) => line.sampled],
  ["wall", "n", (line) => line.wall_s],
];

/** The selected rollouts, one in each row. order: {column, down} as it was chosen last. */
function list(state, order, sorted) {
  const numbers =
    order.column === null
      ? state.selected
      : [...state.selected].sort((a, b) => compare(state.lines[a], state.lines[b], COLUMNS[order.column][2]) * (order.down ? -1 : 1));
  const head = COLUMNS.map(([title, kind], at) => {
    const is = order.column === at ? (order.down ? "descending" : "ascending") : null;
    return h(
      "th",
      { scope: "col", class: kind || null, "aria-sort": is },
      button(title, () => sorted(at)),
    );
  });
  return paged(
    numbers,
    (shown) =>
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "rollouts" },
          h("thead", null, h("tr", null, head)),
          h(
            "tbody",
            null,
            shown.map((number) => listRow(number, state)),
          ),
        ),
      ),
    ROLLOUTS,
    "rollouts",
  );
}

function compare(a, b, value) {
  const [x, y] = [value(a), value(b)];
  if (typeof x === "number" || typeof y === "number") return (x ?? -Infinity) - (y ?? -Infinity);
  return String(x).localeCompare(String(y), "en", { numeric: true });
}

function listRow(number, state) {
  const line = state.lines[number];
  const labels = Object.entries(line.labels).map(([name, n]) => h("span", { class: `label ${name}` }, `${name} ${n}`));
  return h(
    "tr",
    null,
    h("td", null, verdict(line.status)),
    h("td", null, h("a", { href: state.address(number) }, inline(line.task))),
    h("td", null, inline(columnOf(line))),
    h("td", { class: "n" }, count(line.sample)),
    h("td", null, inline(line.phase)),
    h("td", null, inline(line.outcome)),
    h("td", { class: "n" }, decimals(line.reward)),
    h("td", { class: "n" }, count(line.calls)),
    h("td", null, labels),
    h("td", { class: "n" }, count(line.sampled)),
    h("td", { class: "n" }, seconds(line.wall_s)),
  );
}
