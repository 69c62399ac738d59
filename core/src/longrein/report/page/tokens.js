// Tokens of a call: the prompt as context, the sample coloured by log-probability and underlined where it is trained.

const LEVELS = [0.05, 0.22, 0.7, 1.6, 3, 5];
const SHOWN_CONTEXT = 300;

/** The level of a log-probability, 0 for nearly certain to 6. */
function level(logprob) {
  const surprise = -logprob;
  const at = LEVELS.findIndex((bound) => surprise <= bound);
  return at < 0 ? LEVELS.length : at;
}

/** Folded tokens of a turn; fetched and drawn when it is opened. */
function tokenView(turn, { store, index }) {
  const what = `Tokens: ${count(turn.prompt_len)} in the prompt, ${count(turn.sampled)} sampled`;
  const details = h(
    "details",
    { class: "tokens" },
    h(
      "summary",
      null,
      what,
      known(turn.mean_logprob) ? h("span", { class: "size" }, ` · mean log p ${decimals(turn.mean_logprob, 3)}`) : null,
    ),
  );
  details.addEventListener("toggle", async () => {
    if (!details.open || details.childElementCount > 1) return;
    const place = h("div", { class: "token-place" });
    details.append(place);
    place.append(...(await drawTokens(turn, store, await store.get(index.vocabulary))));
  });
  return details;
}

async function drawTokens(turn, store, vocabulary) {
  const data = await store.get(turn.tokens);
  if (!data.ids.length && !data.n_context)
    return [h("p", { class: "note" }, "The endpoint returned no token ids for this call: it can be evaluated and not trained.")];
  const trained = turn.label === "train";
  const own = data.ids.map((id, i) => sampled(id, data.logprobs[i], i, trained, vocabulary));
  const context = await contextTokens(turn, data, store, vocabulary);
  const mask = trained ? "trained (mask 1)" : `sampled, not trained (mask 0): ${turn.label}`;
  const words = vocabulary
    ? null
    : h(
        "p",
        { class: "note" },
        "The tokenizer of this policy was not at hand when the page was made (longrein view --tokenizer DIR): tokens are shown by id.",
      );
  return [
    words,
    tokenKey(trained, mask),
    h("div", { class: vocabulary ? "token-text" : "token-text by-id", dir: "ltr" }, context, own),
  ].filter(Boolean);
}

function tokenKey(trained, mask) {
  const bounds = ["p ≥ 0.95", "≥ 0.8", "≥ 0.5", "≥ 0.2", "≥ 0.05", "≥ 0.007", "less"];
  return h(
    "ul",
    { class: "legend token-key" },
    h("li", null, h("span", { class: "token context" }, "prompt"), "mask 0"),
    h("li", null, h("span", { class: `token lp0 ${trained ? "trained" : "untrained"}` }, "sampled"), mask),
    bounds.map((text, i) => h("li", null, h("span", { class: `token lp${i}` }, text))),
  );
}

async function contextTokens(turn, data, store, vocabulary) {
  const ids = (await store.all(data.context)).flat();
  const draw = (list) => list.map((id) => h("span", { class: "token context", title: `id ${id}, prompt` }, tokenText(id, vocabulary)));
  const before = turn.parent
    ? h("span", { class: "cut" }, `[… ${count(turn.prompt_len - data.n_context)} tokens of the prompt are those of call ${turn.parent} …]`)
    : null;
  if (ids.length <= SHOWN_CONTEXT) return [before, ...draw(ids)];
  const place = h("span", null, draw(ids.slice(0, SHOWN_CONTEXT / 2)));
  const left = ids.length - SHOWN_CONTEXT;
  const show = button(`show ${count(left)} more tokens of the prompt`, () => place.replaceChildren(...draw(ids)), { class: "cut" });
  place.append(show, ...draw(ids.slice(-SHOWN_CONTEXT / 2)));
  return [before, place];
}

function sampled(id, logprob, position, trained, vocabulary) {
  const odds = known(logprob) ? `log p ${logprob.toFixed(4)}, p ${Math.exp(logprob).toPrecision(3)}` : "no log-probability";
  const words = `id ${id}, sampled ${position}, ${odds}, ${trained ? "trained" : "not trained"}`;
  return h(
    "span",
    { class: `token ${trained ? "trained" : "untrained"} ${known(logprob) ? `lp${level(logprob)}` : "lp-none"}`, title: words },
    tokenText(id, vocabulary),
  );
}

function tokenText(id, vocabulary) {
  const text = vocabulary?.[id];
  return text === undefined ? `${id}` : visible(text.replaceAll("\n", "⏎\n"));
}
