// The page: opens the index, shows the overview or a rollout, and follows the address.

const THEMES = ["system", "light", "dark"];
const byId = (id) => document.getElementById(id);

class Page {
  constructor(index) {
    this.index = index;
    this.store = new Store(index.firsts);
    this.state = new State(index.rollouts);
    this.order = { column: null, down: false };
    this.turn = -1;
    this.scrolled = 0;
  }

  async start() {
    showFacts(this.index.overview);
    filterForm(byId("filters"), this.state, (name, value) => this.filter(name, value));
    this.selection = h("div", { class: "selection" });
    byId("overview").replaceChildren(
      ...overviewSections(this.index.overview, this.index.rollouts).filter(Boolean),
      this.selection,
      ...[background(this.index.overview)].filter(Boolean),
    );
    this.showSelection();
    addEventListener("hashchange", () => this.follow());
    await this.follow();
  }

  filter(name, value) {
    if (name) this.state.setFilter(name, value);
    else for (const key of Object.keys(this.state.filter)) this.state.setFilter(key, "");
    this.showSelection();
  }

  showSelection() {
    const { state } = this;
    syncForm(byId("filters"), state);
    if (!state.lines.length)
      return this.selection.replaceChildren(h("p", { class: "card" }, "No rollout has finished yet. Make the page again when one has."));
    if (!state.selected.length) return this.selection.replaceChildren(h("p", { class: "card" }, "No rollout fits the filter."));
    const listed = h("div");
    const draw = () =>
      listed.replaceChildren(
        list(state, this.order, (column) => {
          this.order = { column, down: this.order.column === column && !this.order.down };
          draw();
        }),
      );
    draw();
    this.selection.replaceChildren(
      section("Tasks by agents", "A mark for each rollout: ✓ passed, ✗ failed, ? could not be scored.", matrix(state)),
      section("Rollouts", null, listed),
    );
  }

  /** Show what the address says. */
  async follow() {
    const filter = JSON.stringify(this.state.filter);
    const before = this.state.rollout;
    this.state.read();
    if (JSON.stringify(this.state.filter) !== filter) this.showSelection();
    const { rollout } = this.state;
    const opened = rollout !== null;
    if (before === null && opened && !byId("overview").hidden) this.scrolled = scrollY;
    if (opened) await this.showTrace();
    if (this.state.rollout !== rollout) return; // the address went on while this one loaded
    byId("overview").hidden = byId("filters").hidden = opened;
    byId("trace").hidden = !opened;
    byId("message").hidden = true;
    scrollTo(0, opened ? 0 : this.scrolled);
    document.documentElement.dataset.shown = opened ? `rollout ${rollout}` : "overview";
  }

  async showTrace() {
    const { state } = this;
    const { rollout } = state;
    const line = state.lines[rollout];
    const detail = await this.store.get(line.detail);
    const view = await traceView(line, detail, this);
    if (state.rollout !== rollout) return;
    const at = state.selected.indexOf(rollout);
    const to = (step, words) => {
      const next = state.neighbour(step);
      return h("a", { class: "button", href: next === null ? null : state.address(next), "aria-disabled": next === null }, words);
    };
    const nav = h(
      "nav",
      { class: "steps", "aria-label": "Rollouts" },
      h("a", { class: "button", href: state.address(null) }, "← Overview"),
      to(-1, "‹ Before (k)"),
      to(1, "Next (j) ›"),
      h("span", { class: "note" }, at < 0 ? "outside the filter" : `${count(at + 1)} of ${count(state.selected.length)}`),
    );
    const title = h(
      "h2",
      null,
      verdict(line.status),
      " ",
      inline(line.task),
      h("span", { class: "sub" }, inline(columnOf(line)), ` · sample ${line.sample} · `, inline(line.phase)),
    );
    byId("trace").replaceChildren(h("div", { class: "trace-head" }, nav, title), view);
    this.turn = -1;
  }

  step(by) {
    const next = this.state.neighbour(by);
    if (next !== null) this.state.open(next);
  }

  stepTurn(by) {
    const turns = document.querySelectorAll(".turn");
    if (!turns.length || this.state.rollout === null) return;
    this.turn = Math.max(0, Math.min(turns.length - 1, this.turn + by));
    goTo(null, turns[this.turn].id);
  }

  toggleTokens() {
    const all = [...document.querySelectorAll("#trace .tokens")];
    const open = !all.some((one) => one.open);
    for (const one of all) one.open = open;
  }

  search() {
    if (this.state.rollout !== null) this.state.open(null);
    byId("overview").hidden = byId("filters").hidden = false;
    byId("trace").hidden = true;
    byId("filters").elements.text.select();
  }

  back() {
    if (this.state.rollout !== null) this.state.open(null);
  }
}

/** Switch between the system's theme, light and dark; remembered where the browser lets a file remember. */
function theme(next) {
  const names = { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  byId("theme").textContent = names[next];
  try {
    localStorage.setItem("longrein-theme", next);
  } catch {
    /* storage is closed to files in some browsers */
  }
}

function nextTheme() {
  theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % THEMES.length]);
}

function storedTheme() {
  try {
    return THEMES.find((name) => name === localStorage.getItem("longrein-theme")) ?? "system";
  } catch {
    return "system";
  }
}

async function start() {
  theme(storedTheme());
  helpDialog(byId("help"));
  byId("theme").addEventListener("click", nextTheme);
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old for this page; use one from mid 2024 or later");
  const page = new Page(await unpack(document.querySelector("script.index")));
  await page.start();
  listenToKeys({
    j: () => page.step(1),
    ArrowRight: () => page.step(1),
    k: () => page.step(-1),
    ArrowLeft: () => page.step(-1),
    n: () => page.stepTurn(1),
    p: () => page.stepTurn(-1),
    t: () => page.toggleTokens(),
    "/": () => page.search(),
    Escape: () => page.back(),
    d: nextTheme,
    "?": () => byId("help").showModal(),
  });
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  byId("message").hidden = false;
  byId("message").textContent = `The page could not be opened: ${error.message}`;
  throw error;
});
