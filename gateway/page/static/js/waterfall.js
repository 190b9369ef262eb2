// Where the time of calls went: a row per call, all on one scale of time.

import { element, setPart } from "./element.js";
import { seconds as duration, time } from "./format.js";

const PHASES = ["admit", "select", "queue", "prefill", "decode"];
const HEADS = ["Call", "Where the time went", "Total", "Began", "Outcome", "Worker", "Prompt, cached", "Output", "Service"];

// Returns a table of the calls of one interaction, in order of arrival and on one axis of time.
export function waterfall(calls, caption) {
  const ordered = [...calls].sort((one, other) => one.received - other.received);
  const begin = Math.min(...ordered.map((call) => call.received));
  const end = Math.max(...ordered.map((call) => call.finished));
  return table(ordered, caption, () => begin, end - begin);
}

// Returns a table of calls that have nothing to do with each other: each begins at the left.
export function comparison(calls, caption) {
  const longest = Math.max(...calls.map((call) => call.finished - call.received));
  return table(calls, caption, (call) => call.received, longest);
}

function table(calls, caption, beginOf, seconds) {
  const box = element("div", { className: "scroll" });
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", caption);
  box.append(legend());
  const made = element("table", { parent: box });
  element("caption", { text: caption, parent: made });
  const head = element("tr", { parent: element("thead", { parent: made }) });
  for (const name of HEADS) {
    element("th", { text: name, parent: head }).scope = "col";
  }
  const body = element("tbody", { parent: made });
  for (const call of calls) {
    body.append(row(call, beginOf(call), Math.max(1e-6, seconds)));
  }
  return box;
}

function legend() {
  const list = element("ul", { className: "legend" });
  for (const phase of PHASES) {
    const item = element("li", { parent: list });
    element("span", { className: `swatch phase-${phase}`, parent: item });
    item.append(phase);
  }
  return list;
}

function row(call, begin, whole) {
  const made = element("tr");
  const name = call.interaction ? `${call.interaction}, stage ${call.stage}` : call.id;
  element("td", { className: "name", text: name, parent: made });
  element("td", { parent: made }).append(track(call, begin, whole));
  const facts = [
    duration(call.finished - call.received),
    time(call.received),
    call.outcome.replaceAll("_", " ") + (call.retries ? `, ${call.retries} retries` : ""),
    call.worker || "–",
    `${call.prompt_tokens}, ${call.cached_tokens}`,
    String(call.output_tokens),
    String(Math.round(call.service)),
  ];
  for (const fact of facts) {
    element("td", { className: "name", text: fact, parent: made });
  }
  return made;
}

function track(call, begin, whole) {
  const made = element("span", { className: "track" });
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", call.phases.map(([name, start, end]) => `${name} ${duration(end - start)}`).join(", "));
  made.title = made.getAttribute("aria-label");
  for (const [name, start, end] of call.phases) {
    const bar = element("i", { className: `phase-${name}`, parent: made });
    setPart(bar, "--from", `${(100 * (start - begin)) / whole}%`);
    setPart(bar, "--part", `${(100 * (end - start)) / whole}%`);
  }
  return made;
}
