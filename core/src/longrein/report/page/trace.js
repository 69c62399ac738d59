// One rollout: verdict, timings, turns, workspace, cases, process.

/** Return the trace of a rollout. line: its line of the index; detail: everything else. */
async function traceView(line, detail, context) {
  const [cases, files, stdout, stderr, prompt] = await Promise.all([
    context.store.get(detail.verdict.cases),
    detail.files ? context.store.get(detail.files.list) : null,
    context.store.get(detail.stdout),
    context.store.get(detail.stderr),
    detail.prompt === null ? null : context.store.get(detail.prompt),
  ]);
  const turns = await Promise.all(detail.turns.map((turn, at) => turnCard(turn, at, detail, context)));
  const body = [
    facts(line, detail),
    timings(line, detail),
    prompt === null || detail.turns.length ? null : section("Prompt", "What the agent was given.", pre(prompt)),
    h(
      "section",
      { class: "turns", id: "turns" },
      turns.length ? turns : h("p", { class: "card note" }, "This agent made no model call."),
      leftOut(detail.turns_left_out, "turns"),
    ),
    workspace(detail, files),
    casesSection(detail, cases),
    processSection(detail, stdout, stderr),
  ];
  return h("div", { class: "columns" }, outline(detail, line), h("div", { class: "body" }, body));
}

function leftOut(n, what) {
  return n ? h("p", { class: "cut" }, `[… ${count(n)} more ${what} are only in the run folder …]`) : null;
}

function outline(detail, line) {
  const item = (target, ...words) => h("li", null, h("a", { href: `#${target}`, on: { click: (event) => goTo(event, target) } }, words));
  const turns = detail.turns.map((turn, at) =>
    item(
      `turn-${at}`,
      h("span", { class: "number" }, `#${turn.index}`),
      label(turn.label),
      h("span", { class: "size" }, turn.error ? "error" : count(turn.sampled)),
    ),
  );
  return h(
    "nav",
    { class: "outline", "aria-label": "Parts of this rollout" },
    h(
      "ol",
      null,
      turns,
      item("workspace", "Workspace", h("span", { class: "size" }, detail.files ? count(detail.files.changed) : "–")),
      item("cases", "Cases", h("span", { class: "size" }, count(Object.values(detail.verdict.counts).reduce((a, b) => a + b, 0)))),
      item("process", "Process", h("span", { class: "size" }, seconds(line.wall_s))),
    ),
  );
}

/** Scroll to a part of the page; the address keeps the view. */
function goTo(event, target) {
  event?.preventDefault();
  const element = document.getElementById(target);
  element?.scrollIntoView({ block: "start" });
  element?.focus({ preventScroll: true });
}

function facts(line, detail) {
  const group = detail.group;
  const parts = Object.entries(detail.reward.parts ?? {})
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");
  const rows = [
    [
      "verdict",
      [
        verdict(line.status),
        known(line.score) ? ` score ${decimals(line.score)}` : "",
        detail.verdict.reason ? " · " : "",
        inline(detail.verdict.reason),
      ],
    ],
    ["outcome", [h("strong", null, visible(detail.outcome.kind)), " ", inline(detail.outcome.reason ?? "")]],
    [
      "reward",
      [
        h("strong", null, decimals(line.reward, 3)),
        ` ${parts ? `(${parts}) ` : ""}`,
        inline(detail.reward.reason ?? ""),
        detail.reward.decided_by ? h("span", { class: "note" }, " by ", inline(detail.reward.decided_by)) : null,
      ],
    ],
    group && [
      "group",
      [
        group.skipped
          ? `skipped: ${group.skipped}`
          : `advantage ${decimals(group.advantage, 3)}, baseline ${decimals(group.baseline, 3)}, ${count(group.rows)} rows with ${count(group.trained_tokens)} trained tokens`,
        h("span", { class: "note" }, " ", inline(detail.group_id)),
      ],
    ],
    ["session", `${seconds(line.wall_s)}, ${count(line.calls)} calls, ${count(line.sampled)} sampled tokens, seed ${detail.seed}`],
    detail.actions.length && [
      "actions",
      detail.actions
        .slice(0, 60)
        .map(([kind, name, more]) =>
          h("span", { class: "action", title: more.slice(0, 300) }, h("b", null, visible(kind)), " ", inline(name || kind)),
        ),
    ],
    ["task", [inline(detail.taskset), " / ", inline(line.task), h("span", { class: "note" }, " digest ", detail.digest.slice(0, 12))]],
  ].filter(Boolean);
  return h(
    "dl",
    { class: "card about" },
    rows.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );
}

function timings(line, detail) {
  if (!detail.turns.length) return null;
  const end = Math.max(line.wall_s, ...detail.turns.map((turn) => turn.ended_s), 0.001);
  const draw = (width) => {
    const svg = s("svg", { width, height: 38, role: "img", "aria-label": `Model calls over ${seconds(end)}` });
    const x = (at) => (at / end) * (width - 2) + 1;
    svg.append(s("line", { x1: 1, x2: width - 1, y1: 20, y2: 20, class: "grid" }));
    for (const tick of ticks(0, end, width / 110))
      svg.append(s("text", { x: Math.min(x(tick), width - 24), y: 36, class: "tick" }, `${tidy(tick)} s`));
    detail.turns.forEach((turn, at) => {
      const words = `call ${turn.index}, ${turn.label}: ${seconds(turn.started_s)} to ${seconds(turn.ended_s)}`;
      svg.append(
        s(
          "rect",
          {
            x: x(turn.started_s),
            y: 6,
            width: Math.max(3, x(turn.ended_s) - x(turn.started_s)),
            height: 14,
            class: `part ${turn.label}`,
            on: { click: () => goTo(null, `turn-${at}`) },
          },
          s("title", null, words),
        ),
      );
    });
    return svg;
  };
  const model = detail.turns.reduce((sum, turn) => sum + turn.ended_s - turn.started_s, 0);
  return section("Timings", `${seconds(model)} of ${seconds(line.wall_s)} in model calls.`, responsive(draw));
}

async function turnCard(turn, at, detail, context) {
  const { store } = context;
  const [messages, reply, tools] = await Promise.all([
    store.all(turn.messages),
    store.get(turn.reply),
    turn.tools === null ? null : store.get(turn.tools),
  ]);
  const head = h(
    "header",
    null,
    h("h3", null, h("span", { class: "number" }, `#${turn.index}`), label(turn.label)),
    h("span", { class: "reason" }, inline(turn.reason), h("span", { class: "note" }, " by ", inline(turn.decided_by))),
    h("span", { class: "size" }, figuresOf(turn)),
  );
  const earlier = turn.kept ? earlierMessages(turn, detail, store) : null;
  const answer = Object.keys(reply).length ? h("div", { class: "reply" }, message({ role: "assistant", ...reply })) : null;
  const trouble = [
    turn.error && ["error", turn.error],
    turn.problem && ["problem", turn.problem],
    !turn.delivered && ["not delivered", "The client had gone before the reply could be handed over."],
  ]
    .filter(Boolean)
    .map(([name, text]) => h("div", { class: "trouble" }, h("b", null, name), " ", inline(text)));
  return h(
    "article",
    { class: `card turn ${turn.label}`, id: `turn-${at}`, tabindex: "-1" },
    head,
    trouble,
    earlier,
    messages.map((one) => message(one, { folded: one?.role === "assistant" })),
    answer,
    tokenView(turn, context),
    request(turn, tools),
  );
}

function figuresOf(turn) {
  const versions = [...new Set(turn.versions)].join("–");
  const used =
    known(turn.usage.completion_tokens) && turn.usage.completion_tokens !== turn.sampled
      ? ` (engine says ${turn.usage.completion_tokens})`
      : "";
  return `${count(turn.prompt_len || turn.usage.prompt_tokens)} → ${count(turn.sampled)}${used} tokens · ${seconds(turn.ended_s - turn.started_s)} · version ${versions} · ${turn.finish_reason ?? "no finish"}`;
}

/** The messages that a request repeats of an earlier call, shown when asked for. */
function earlierMessages(turn, detail, store) {
  const place = h(
    "details",
    { class: "message earlier" },
    h("summary", { class: "role" }, `${count(turn.kept)} messages as in call ${turn.base}`),
  );
  place.addEventListener("toggle", async () => {
    if (place.childElementCount === 1)
      place.append(...(await store.all(messagesOf(turn.base, detail).slice(0, turn.kept))).map((one) => message(one)));
  });
  return place;
}

/** Numbers of all request messages of a call, put together from the deltas. */
function messagesOf(id, detail) {
  const chain = [];
  for (
    let turn = detail.turns.find((one) => one.id === id);
    turn && chain.length <= detail.turns.length;
    turn = detail.turns.find((one) => one.id === turn.base)
  )
    chain.unshift(turn);
  return chain.reduce((list, turn) => [...list.slice(0, turn.kept), ...turn.messages], []);
}

function request(turn, tools) {
  const names = tools ? tools.map((tool) => tool?.function?.name ?? tool?.name ?? "tool") : [];
  const about = { asked: turn.asked, max_tokens: turn.max_tokens, dialect: turn.dialect, usage: turn.usage, parent: turn.parent };
  const details = h("details", { class: "request" }, h("summary", null, `Request${names.length ? `, ${names.length} tools` : ""}`));
  details.addEventListener("toggle", () => {
    if (details.childElementCount === 1)
      details.append(
        pre(JSON.stringify(about, null, 2)),
        ...(tools ? [h("p", { class: "note" }, "tools: ", visible(names.join(", "))), pre(JSON.stringify(tools, null, 2))] : []),
      );
  });
  return details;
}

function workspace(detail, files) {
  const place = { class: "card", id: "workspace", tabindex: "-1" };
  if (!files)
    return h("section", place, h("h2", null, "Workspace"), h("p", { class: "note" }, "The run folder holds no files of this session."));
  const same = files.filter((file) => file.change === "same");
  const changed = files.filter((file) => file.change !== "same");
  const note = detail.files.start_known
    ? "Against the files that the session began with."
    : "What the session began with is not recorded: these are the files as it ended.";
  return h(
    "section",
    place,
    h("h2", null, "Workspace"),
    h("p", { class: "note" }, note, ` All files are in ${detail.files.archive}.`),
    changed.length ? changed.map(fileChange) : h("p", { class: "note" }, "No file changed."),
    same.length ? h("p", { class: "note" }, `${count(same.length)} unchanged: `, inline(same.map((file) => file.path).join(", "))) : null,
    leftOut(detail.files.left_out, "files"),
  );
}

function casesSection(detail, cases) {
  const counts = Object.entries(detail.verdict.counts)
    .map(([status, n]) => `${status} ${n}`)
    .join(", ");
  const columns = [["#", "n"], ["result"], ["detail"], ["got"], ["expected"], ["CPU", "n"], ["wall", "n"]];
  const rows = cases.map((one, i) => [
    `${i + 1}`,
    h(
      "span",
      { class: `verdict ${one.status === "passed" ? "passed" : "failed"}` },
      one.status === "passed" ? "✓ " : "✗ ",
      visible(one.status),
    ),
    excerpt(one.detail),
    excerpt(one.got),
    excerpt(one.expected),
    seconds(one.cpu_s),
    seconds(one.wall_s),
  ]);
  const details = Object.keys(detail.verdict.details).length ? pre(JSON.stringify(detail.verdict.details, null, 2)) : null;
  return h(
    "section",
    { class: "card", id: "cases", tabindex: "-1" },
    h("h2", null, "Cases"),
    h("p", { class: "note" }, counts || "The verifier reported no cases."),
    cases.length ? table(columns, rows, { class: "cases" }) : null,
    leftOut(detail.verdict.cases_left_out, "cases"),
    details,
  );
}

function excerpt(text) {
  return text ? pre(text, "excerpt") : "";
}

function processSection(detail, stdout, stderr) {
  const findings = detail.findings.map((finding) => h("li", null, h("b", null, visible(finding.source)), ": ", inline(finding.message)));
  const output = (name, text) =>
    text
      ? h("details", { class: "output" }, h("summary", null, `${name}, ${count(text.length)} characters`), pre(text))
      : h("p", { class: "note" }, `${name}: nothing`);
  return h(
    "section",
    { class: "card", id: "process", tabindex: "-1" },
    h("h2", null, "Process"),
    h("p", { class: "note" }, `exit code ${detail.exit_code ?? "–"}`),
    findings.length ? h("ul", { class: "findings" }, findings) : null,
    output("Standard output", stdout),
    output("Standard error", stderr),
    pre(JSON.stringify(detail.sandbox, null, 2)),
  );
}
