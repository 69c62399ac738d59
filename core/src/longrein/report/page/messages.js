// Messages of a request, the reply, tool calls and diffs.

const SHORT = { user: 6000 };
const SHORT_OTHERS = 900;

/** One message. Long ones are folded, and so is what the agent only repeats of the policy. */
function message(value, { folded = false } = {}) {
  const role = String(value?.role ?? "message");
  const parts = [...content(value?.content), ...listed(value?.tool_calls).map(toolCall)];
  const thought = value?.reasoning ?? value?.reasoning_content;
  if (typeof thought === "string" && thought)
    parts.unshift(h("div", { class: "reasoning" }, h("span", { class: "what" }, "reasoning"), pre(thought)));
  const length = JSON.stringify(value?.content ?? "").length;
  const about = value?.tool_call_id ? ` for ${value.tool_call_id}` : "";
  if (!parts.length) parts.push(h("p", { class: "note" }, "no text"));
  const long = length > (SHORT[role] ?? SHORT_OTHERS);
  if (!long && !folded) return h("div", { class: `message ${roleClass(role)}` }, h("div", { class: "role" }, inline(role + about)), parts);
  const first = firstLine(
    value?.content ||
      listed(value?.tool_calls)
        .map((call) => call?.function?.name ?? "tool")
        .join(", "),
  );
  return h(
    "details",
    { class: `message ${roleClass(role)}` },
    h(
      "summary",
      { class: "role" },
      inline(role + about),
      h("span", { class: "size" }, long ? ` ${count(length)} characters: ` : " "),
      inline(first, "first"),
    ),
    parts,
  );
}

function roleClass(role) {
  return ["system", "developer", "user", "assistant", "tool"].includes(role) ? role : "other";
}

/** What should be a list, as one: requests are as the agent wrote them. */
function listed(value) {
  return Array.isArray(value) ? value : [];
}

function firstLine(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.trim().split("\n")[0].slice(0, 120);
}

function content(value) {
  if (value === null || value === undefined || value === "") return [];
  if (typeof value === "string") return [pre(value)];
  if (!Array.isArray(value)) return [pre(JSON.stringify(value, null, 2))];
  return value.map((part) => (typeof part?.text === "string" ? pre(part.text) : pre(JSON.stringify(part, null, 2))));
}

/** A tool call with its arguments, one in each row; what is not JSON is shown as it is. */
function toolCall(call) {
  const name = call?.function?.name ?? "tool";
  const given = call?.function?.arguments;
  const values = parsed(given);
  const body = values
    ? Object.entries(values).map(([key, value]) =>
        h(
          "div",
          { class: "argument" },
          h("span", { class: "what" }, inline(key)),
          pre(typeof value === "string" ? value : JSON.stringify(value, null, 2)),
        ),
      )
    : pre(typeof given === "string" ? given : JSON.stringify(given ?? ""));
  return h("div", { class: "tool-call" }, h("div", { class: "tool-name" }, inline(name)), body);
}

function parsed(text) {
  try {
    const value = typeof text === "string" ? JSON.parse(text) : text;
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

const DIFF_KINDS = { "+": "plus", "-": "minus", "@": "place" };

/** A file of the workspace: a diff, or its text. */
function fileChange(change) {
  const about = [
    h("span", { class: `change-kind ${change.change}` }, change.change),
    inline(change.path, "path"),
    change.note ? h("span", { class: "note" }, ` ${change.note}`) : null,
  ];
  if (change.form === "none") return h("div", { class: "file" }, h("div", { class: "file-head" }, about));
  const lines = change.body.split("\n");
  if (change.form === "text" && lines.at(-1) === "") lines.pop();
  const rows =
    change.form === "diff"
      ? lines.slice(2).map((line) => diffLine(DIFF_KINDS[line[0]] ?? "same", line))
      : lines.map((line) => diffLine(change.change === "added" ? "plus" : "same", change.change === "added" ? `+${line}` : line));
  return h(
    "details",
    { class: "file", open: rows.length <= 120 },
    h(
      "summary",
      { class: "file-head" },
      about,
      h("span", { class: "size" }, ` ${count(rows.length)} ${rows.length === 1 ? "line" : "lines"}`),
    ),
    h("pre", { class: "text diff" }, rows),
  );
}

function diffLine(kind, text) {
  return h("span", { class: `diff-line ${kind}`, dir: "ltr" }, visible(text), "\n");
}
