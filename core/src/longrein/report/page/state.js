// What is shown: a filter and perhaps one rollout. Both are in the address after #, so a view can be kept and sent.

const FILTERS = [
  ["agent", "Agent"],
  ["policy", "Policy"],
  ["phase", "Phase"],
  ["status", "Verdict"],
  ["outcome", "Outcome"],
  ["label", "Label"],
];

class State {
  /** lines: the index of rollouts. */
  constructor(lines) {
    this.lines = lines;
    this.choices = Object.fromEntries(FILTERS.map(([name]) => [name, choicesOf(lines, name)]));
    this.read();
  }

  /** Take filter and rollout from the address. */
  read() {
    const values = new URLSearchParams(location.hash.slice(1));
    const number = Number.parseInt(values.get("rollout") ?? "", 10);
    this.rollout = number >= 0 && number < this.lines.length ? number : null;
    this.filter = Object.fromEntries(FILTERS.map(([name]) => [name, values.get(name) ?? ""]));
    this.filter.text = values.get("text") ?? "";
    this.select();
  }

  select() {
    const words = this.filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    this.selected = [];
    this.lines.forEach((line, number) => {
      if (FILTERS.every(([name]) => !this.filter[name] || has(line, name, this.filter[name])) && words.every((word) => says(line, word)))
        this.selected.push(number);
    });
  }

  /** The address of a rollout, or of the overview (null), with the filter as it is. */
  address(rollout) {
    const values = new URLSearchParams(Object.entries(this.filter).filter(([, value]) => value));
    if (rollout !== null) values.set("rollout", rollout);
    return `#${values}`;
  }

  setFilter(name, value) {
    this.filter[name] = value;
    this.select();
    history.replaceState(null, "", this.address(this.rollout));
  }

  open(rollout) {
    location.hash = this.address(rollout);
  }

  /** The rollout before (-1) or after (1) the open one among those selected, or null. */
  neighbour(step) {
    const at = this.selected.indexOf(this.rollout);
    if (at < 0) return this.selected[step > 0 ? 0 : this.selected.length - 1] ?? null;
    return this.selected[at + step] ?? null;
  }
}

function has(line, name, value) {
  return name === "label" ? value in line.labels : line[name] === value;
}

function says(line, word) {
  line.words ??= `${line.task} ${line.id} ${line.reason}`.toLowerCase();
  return line.words.includes(word);
}

function choicesOf(lines, name) {
  const counts = new Map();
  for (const line of lines)
    for (const value of name === "label" ? Object.keys(line.labels) : [line[name]]) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true }));
}
