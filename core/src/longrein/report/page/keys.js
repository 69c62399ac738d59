// The keyboard.

const KEYS = [
  ["j or →", "next rollout"],
  ["k or ←", "rollout before"],
  ["n, p", "next turn, turn before"],
  ["t", "open or close the tokens of all turns"],
  ["/", "filter"],
  ["Esc", "leave a field, close this, back to the overview"],
  ["d", "light, dark, or as the system"],
  ["?", "these keys"],
];

function helpDialog(dialog) {
  const rows = KEYS.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)]);
  dialog.replaceChildren(
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", null, rows),
    button("Close", () => dialog.close(), { autofocus: true }),
  );
}

/** Listen for keys. actions: by key, functions without arguments. */
function listenToKeys(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const writing = event.target.matches?.("input, select, textarea");
    if (event.key === "Escape" && writing) return event.target.blur();
    if (writing || document.querySelector("dialog[open]")) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
