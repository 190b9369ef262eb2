// One client: its newest interactions, and the waterfall of each.

import { element } from "./element.js";
import { counted, seconds, time } from "./format.js";
import { waterfall } from "./waterfall.js";

export class Calls {
  constructor(title, text, container) {
    this.title = title;
    this.text = text;
    this.container = container;
  }

  async choose(client) {
    const response = await fetch(`/calls?client=${encodeURIComponent(client)}`);
    const calls = response.ok ? await response.json() : [];
    this.title.textContent = `Calls of ${client}`;
    this.text.textContent = calls.length
      ? `The newest ${counted(calls.length, "call")} at this gateway. Prompts and answers are not kept.`
      : "This gateway remembers no call of this client that has ended.";
    this.container.replaceChildren(...interactions(calls).map((group, index) => interaction(group, index === 0)));
    this.title.scrollIntoView({ block: "start" });
    this.title.focus({ preventScroll: true });
  }
}

function interactions(calls) {
  const groups = new Map();
  for (const call of calls) {
    const key = JSON.stringify([call.app, call.interaction || call.id]);
    groups.set(key, [...(groups.get(key) ?? []), call]);
  }
  return [...groups.values()];
}

// The waterfall is made when it is opened.
function interaction(calls, isOpen) {
  const details = element("details");
  const [first] = calls;
  const begin = Math.min(...calls.map((call) => call.received));
  const end = Math.max(...calls.map((call) => call.finished));
  const what = first.interaction ? `interaction ${first.interaction}, ${counted(calls.length, "call")}` : `call ${first.id}`;
  element("summary", { text: `${time(begin)}  ${what}, ${seconds(end - begin)}`, parent: details });
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) {
      details.append(waterfall(calls, `${what} of ${first.client}`));
    }
  });
  details.open = isOpen;
  return details;
}
