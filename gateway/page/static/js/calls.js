// One client: its newest interactions with the waterfall of each, and its newest calls outside interactions.

import { element } from "./element.js";
import { counted, seconds, time } from "./format.js";
import { comparison, waterfall } from "./waterfall.js";

const MOST_ALONE = 20;

export class Calls {
  constructor(title, text, container) {
    this.title = title;
    this.text = text;
    this.container = container;
  }

  async choose(client) {
    const response = await fetch(`/calls?client=${encodeURIComponent(client)}`);
    const calls = response.ok ? await response.json() : [];
    const alone = calls.filter((call) => !call.interaction);
    const groups = interactions(calls.filter((call) => call.interaction));
    this.title.textContent = `Calls of ${client}`;
    this.text.textContent = calls.length
      ? `The newest ${counted(calls.length, "call")} that have ended at this gateway. Prompts and answers are not kept.`
      : "This gateway remembers no call of this client that has ended.";
    this.container.replaceChildren(...groups.map((group, index) => interaction(group, index === 0)));
    if (alone.length > 0) {
      const newest = alone.slice(0, MOST_ALONE);
      this.container.append(comparison(newest, `The newest ${counted(newest.length, "call")} outside interactions`));
    }
    this.title.scrollIntoView({ block: "start" });
    this.title.focus({ preventScroll: true });
  }
}

function interactions(calls) {
  const groups = new Map();
  for (const call of calls) {
    const key = JSON.stringify([call.app, call.interaction]);
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
  const what = `interaction ${first.interaction}, ${counted(calls.length, "call")}`;
  element("summary", { text: `${time(begin)}  ${what}, ${seconds(end - begin)}`, parent: details });
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) {
      details.append(waterfall(calls, what));
    }
  });
  details.open = isOpen;
  return details;
}
