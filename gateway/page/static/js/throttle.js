// What the throttle does: limits that are used up, and interactions in progress.

import { counted, time, units } from "./format.js";
import { setText } from "./element.js";
import { Rows } from "./rows.js";

const KINDS = {
  oit: "Limits are enforced only while workers are overloaded, and interactions in progress go on.",
  rpm: "Limits are always enforced.",
  none: "There are no limits.",
};

// An account's key is "user:NAME", or of a budget "tokens:calendar_day:user:NAME".
const named = (key) =>
  key.replace(/^(tokens|cost|money):(\w+):/, (_, measure, window) => `${measure} per ${window.replace("_", " ")} of `).replace(":", " ");

export class Throttle {
  constructor(text, exhausted, apps) {
    this.text = text;
    this.exhausted = new Rows(
      exhausted,
      [
        { isHead: true, className: "name", text: (_, key) => named(key) },
        { className: "number", text: (account) => units(account.limit) },
        { className: "number", text: (account) => time(account.until) },
      ],
      "No limit is used up.",
    );
    this.apps = new Rows(
      apps,
      [
        { isHead: true, className: "name", text: (_, name) => name || "refused before it was known" },
        ...["served", "throttled", "refused", "failed", "cancelled"].map((field) => ({
          className: "number",
          text: (app) => units(app[field]),
        })),
      ],
      "No interaction is over yet.",
    );
  }

  show(throttle) {
    const { in_flight: busy, idle } = throttle.interactions;
    const load = throttle.overloaded ? `Overloaded now: ${throttle.overloaded}.` : "No model is overloaded now.";
    const open = `${counted(busy + idle, "interaction")} in progress ${busy + idle === 1 ? "is" : "are"} protected, ${units(busy)} with a call in flight.`;
    const { close, predicted } = throttle.waits;
    const waits = predicted ? ` ${Math.round((100 * close) / predicted)}% of ${units(predicted)} predicted waits came true, within 25% or 200 ms.` : "";
    setText(this.text, `${KINDS[throttle.kind]} ${load} ${open}${waits}`);
    this.exhausted.update(Object.entries(throttle.exhausted));
    this.apps.update(Object.entries(throttle.apps).sort(([one], [other]) => (one < other ? -1 : 1)));
  }
}
