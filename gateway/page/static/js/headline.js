// The page's first lines: who waits, and how far apart they can be.

import { setClass, setText } from "./element.js";
import { counted, percent, seconds, units } from "./format.js";

export class Headline {
  // `ahead` is the figure that says something only while clients wait.
  constructor(headline, connection, bound, ahead) {
    this.ahead = ahead;
    this.headline = headline;
    this.connection = connection;
    this.bound = bound;
  }

  show(state) {
    const { fairness, scheduler, workers, clients } = state;
    const waiting = `${counted(fairness.backlogged, "client")} ${fairness.backlogged === 1 ? "waits" : "wait"}`;
    setText(
      this.headline,
      `${counted(Object.keys(workers).length, "worker")}, ${counted(Object.keys(clients).length, "client")}; ${waiting}. ` +
        `Policies: ${policies(scheduler, workers)}.`,
    );
    setClass(this.connection, scheduler.away ? "lost" : "");
    setText(this.connection, scheduler.away ? `No news: ${scheduler.away}.` : "Live");
    this.ahead.hidden = fairness.backlogged === 0;
    setText(this.bound, fairness.backlogged === 0 ? calmText(workers) : boundText(fairness));
  }

  lost() {
    setClass(this.connection, "lost");
    setText(this.connection, "The gateway does not answer. Connecting again.");
  }
}

function policies(scheduler, workers) {
  const local = [...new Set(Object.values(workers).map((worker) => worker.policy))];
  return [scheduler.policy, ...local].filter(Boolean).join(", ") || "unknown";
}

// What is used while nobody is kept from anything: then shares show what clients asked for.
function calmText(workers) {
  const kv = Object.values(workers).reduce((sum, worker) => sum + worker.kv, 0);
  const all = Object.values(workers).reduce((sum, worker) => sum + worker.kv_tokens, 0);
  const running = Object.values(workers).reduce((sum, worker) => sum + worker.running, 0);
  const used = all > 0 ? `, and ${percent(kv / all)} of the cache in use` : "";
  return `Enough for everybody: no client waits. ${counted(running, "request")} running${used}. Shares show what clients ask for.`;
}

function boundText(fairness) {
  if (fairness.bound === undefined) {
    return "The policy of the workers has no bound: a client that waits can fall behind without limit.";
  }
  const time = fairness.rate ? `, which the workers serve in ${seconds(fairness.bound / fairness.rate)}` : "";
  return (
    `${siblings(fairness.levels)} that wait are never apart by more than ${units(fairness.bound)} cost units${time}. ` +
    `The largest gap that a worker measured is ${percent(fairness.gap_part)} of its bound.`
  );
}

// Whose service the bound compares. `levels` are the workers' levels of fairness; undefined: of older workers.
function siblings(levels) {
  const named = {
    tenant: "two tenants",
    user: levels?.includes("tenant") ? "two users of one tenant" : "two clients",
    interaction: "two interactions of one user",
  };
  const text = (levels ?? "user").split(", ").map((level) => named[level]).join(", or ");
  return text[0].toUpperCase() + text.slice(1);
}
