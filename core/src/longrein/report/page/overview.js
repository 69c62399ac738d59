// The whole run: facts, figures, plots.

/** Return the sections that do not depend on the filter. */
function overviewSections(overview, lines) {
  const parts = [];
  if (overview.notes.length)
    parts.push(
      h(
        "section",
        { class: "card notes" },
        h("h2", null, "To know"),
        h(
          "ul",
          null,
          overview.notes.map((note) => h("li", null, visible(note))),
        ),
      ),
    );
  if (overview.figures.length) parts.push(figures(overview), ...transfer(overview));
  if (overview.sides.length) parts.push(sides(overview));
  if (lines.length) parts.push(labelBars(lines));
  parts.push(...pairPlot(overview));
  const curves = overview.charts.map(curve);
  return [h("div", { class: "grid" }, parts, curves)];
}

function nameOfFigures(figures) {
  return figures.policy ? `${figures.agent} · ${figures.policy}` : figures.agent;
}

function figures(overview) {
  const list = overview.figures;
  const agents = [...new Set(list.map((one) => one.agent))];
  const items = list.map((one) => ({
    name: nameOfFigures(one),
    value: one.pass_rate,
    interval: one.interval,
    note: `of ${count(one.scored)}`,
    series: agents.indexOf(one.agent),
  }));
  const ks = [...new Set(list.flatMap((one) => one.pass_at.map((at) => at.k)))].filter((k) => k > 1).sort((a, b) => a - b);
  const kinds = [...new Set(list.flatMap((one) => Object.keys(one.actions)))];
  const columns = [
    ["agent"],
    ["passed", "n"],
    ["95 % interval", "n"],
    ["scored", "n"],
    ["unscorable", "n"],
    ...ks.map((k) => [`pass@${k}`, "n"]),
    ["reward", "n"],
    ["calls", "n"],
    ["tokens in", "n"],
    ["tokens out", "n"],
    ["wall", "n"],
    ["aux", "n"],
    ...kinds.map((kind) => [kind, "n"]),
  ];
  const rows = list.map((one) => [
    inline(nameOfFigures(one)),
    percent(one.pass_rate),
    range(one.interval, (v) => (100 * v).toFixed(1)),
    count(one.scored),
    unscorable(one),
    ...ks.map((k) => percent(one.pass_at.find((at) => at.k === k)?.value)),
    decimals(one.reward),
    decimals(one.calls, 1),
    tokens(one.tokens_in),
    tokens(one.tokens_out),
    seconds(one.wall_s),
    percent(one.aux_share),
    ...kinds.map((kind) => decimals(one.actions[kind] ?? 0, 1)),
  ]);
  const plot = intervals(items, {
    label: "Pass rate of each agent with 95 % intervals",
    low: 0,
    high: 1,
    form: percent,
    tick: wholePercent,
  });
  return h(
    "section",
    { class: "card wide" },
    h("h2", null, "Agents"),
    h("p", { class: "note" }, "Pass rates with 95 % Wilson intervals, and means of a rollout. Unscorable rollouts are in no rate."),
    plot,
    table(columns, rows, { class: "figures" }),
  );
}

function unscorable(one) {
  const kinds = Object.entries(one.unscorable_outcomes)
    .map(([kind, n]) => `${kind} ${n}`)
    .join(", ");
  return h("span", { title: kinds || null, class: one.unscorable ? "warn" : null }, count(one.unscorable));
}

function tokens(value) {
  return known(value) ? count(Math.round(value)) : "–";
}

const CONCLUSIONS = {
  "not separated": "not separated by this data",
  "too few tasks": "too few tasks to judge",
  "no common task": "no task in common",
};

function conclusion(pair) {
  if (pair.conclusion === "higher" || pair.conclusion === "lower")
    return [inline(pair.conclusion === "higher" ? pair.second : pair.first), " passes more"];
  return CONCLUSIONS[pair.conclusion] ?? pair.conclusion;
}

/** Pass rates of policies by agents: what was trained on is marked. */
function transfer(overview) {
  if (overview.policies.length < 2) return [];
  const agents = [...new Set(overview.figures.map((one) => one.agent))];
  const rows = overview.policies.map((policy) => {
    const trained = policy.trained_with;
    const cell = (agent) => {
      const found = overview.figures.find((one) => one.policy === policy.name && one.agent === agent);
      if (!found) return "–";
      return [
        h("b", null, percent(found.pass_rate)),
        " ",
        trained?.includes(agent) ? h("span", { class: "label train" }, "trained") : null,
      ];
    };
    return [inline(policy.name), inline(trained ? trained.join(", ") || "none" : "not known"), ...agents.map(cell)];
  });
  const columns = [["policy"], ["trained through"], ...agents.map((agent) => [agent])];
  return [
    section(
      "Transfer",
      "Pass rate of each policy with each agent, also with agents that it was never trained through.",
      table(columns, rows),
    ),
  ];
}

function pairPlot(overview) {
  const pairs = overview.pairs.filter((pair) => known(pair.difference));
  if (!pairs.length) return [];
  const items = pairs.map((pair) => ({
    name: `${pair.second} − ${pair.first}${pair.agent ? ` (${pair.agent})` : ""}${pair.policy ? ` · ${pair.policy}` : ""}`,
    value: pair.difference,
    interval: pair.interval,
    note: `${pair.tasks} tasks`,
    series: pair.conclusion === "higher" ? 2 : pair.conclusion === "lower" ? 1 : 7,
  }));
  const most = Math.min(1, Math.max(0.1, ...items.flatMap((item) => [item.value, ...(item.interval ?? [])].map(Math.abs))) * 1.1);
  const plot = intervals(items, {
    label: "Differences of pass rates with 95 % intervals",
    low: -most,
    high: most,
    zero: true,
    form: points,
  });
  const rows = pairs.map((pair, i) => [
    inline(items[i].name),
    points(pair.difference),
    range(pair.interval, points),
    count(pair.tasks),
    conclusion(pair),
  ]);
  const columns = [["second − first"], ["points", "n"], ["95 % interval", "n"], ["tasks", "n"], ["what the data says"]];
  return [
    h(
      "section",
      { class: overview.pairs.length > 3 ? "card wide" : "card" },
      h("h2", null, "Differences"),
      h(
        "p",
        { class: "note" },
        "Pass rate of the second minus that of the first, task by task, in percentage points, with 95 % t intervals over tasks.",
      ),
      plot,
      table(columns, rows),
    ),
  ];
}

function sides(overview) {
  const columns = [["phase"], ["agent"], ["passed", "n"], ["95 % interval", "n"], ["scored", "n"], ["unscorable", "n"], ["reward", "n"]];
  const rows = overview.sides.map((side) => [
    inline(side.phase),
    inline(side.agent),
    percent(side.pass_rate),
    range(side.interval, (v) => (100 * v).toFixed(1)),
    count(side.n),
    count(side.unscorable),
    decimals(side.reward),
  ]);
  const evals = overview.sides.filter((side) => side.phase !== "train" && known(side.pass_rate));
  const agents = [...new Set(evals.map((side) => side.agent))];
  const items = evals.map((side) => ({
    name: `${side.agent} · ${side.phase}`,
    value: side.pass_rate,
    interval: side.interval,
    note: `of ${count(side.n)}`,
    series: agents.indexOf(side.agent),
  }));
  const plot = items.length
    ? intervals(items, { label: "Pass rates of evaluations with 95 % intervals", low: 0, high: 1, form: percent, tick: wholePercent })
    : null;
  const changed = overview.changes.map((change) =>
    h(
      "p",
      { class: "change" },
      h("strong", null, visible(change.agent)),
      ` ${change.from} → ${change.to}: ${points(change.difference)} points ${range(change.interval, points)}, ${change.pairs} pairs of agent and task`,
    ),
  );
  return h(
    "section",
    { class: "card wide" },
    h("h2", null, "Before and after"),
    h("p", { class: "note" }, "Pass rates with 95 % Wilson intervals; changes are paired by agent and task, with t intervals."),
    plot,
    changed,
    table(columns, rows),
  );
}

const LABELS = ["train", "context", "aux", "discarded", "invalid"];

function labelBars(lines) {
  const agents = new Map();
  for (const line of lines) {
    const counts = agents.get(line.agent) ?? agents.set(line.agent, { labels: {}, status: {} }).get(line.agent);
    for (const [name, n] of Object.entries(line.labels)) counts.labels[name] = (counts.labels[name] ?? 0) + n;
    counts.status[line.status] = (counts.status[line.status] ?? 0) + 1;
  }
  const rows = [...agents].sort().map(([agent, counts]) =>
    h(
      "div",
      { class: "bars" },
      h("h3", null, visible(agent)),
      h("span", { class: "what" }, "verdicts"),
      stacked(
        Object.keys(SIGNS).map((name) => [`${SIGNS[name]} ${name}`, name, counts.status[name] ?? 0]),
        `verdicts of ${agent}`,
      ),
      h("span", { class: "what" }, "model calls"),
      stacked(
        LABELS.map((name) => [name, name, counts.labels[name] ?? 0]),
        `labels of ${agent}`,
      ),
    ),
  );
  return section("Verdicts and labels", "Of all rollouts and of all their model calls.", rows);
}

/** Facts for the head of the page. */
function showFacts(overview) {
  document
    .getElementById("run-name")
    .replaceChildren(
      inline(overview.name),
      h("span", { class: "kind" }, { run: "run", compare: "comparison", train: "training run" }[overview.kind]),
    );
  document
    .getElementById("run-facts")
    .replaceChildren(
      ...overview.facts.map(([name, value]) => h("span", { class: "fact" }, h("span", { class: "what" }, `${name} `), inline(value))),
    );
}

/** Config and environment, folded. */
function background(overview) {
  if (!overview.config) return null;
  return h(
    "details",
    { class: "card" },
    h("summary", null, "Config and environment"),
    pre(overview.config),
    pre(JSON.stringify(overview.environment, null, 2)),
  );
}
