// The page: what comes from the gateway is drawn at most once per frame.

import { Calls } from "./calls.js";
import { ChartTable } from "./chart_table.js";
import { Charts } from "./charts.js";
import { Clients } from "./clients.js";
import { Connection } from "./connection.js";
import { Controls } from "./controls.js";
import { Evicted } from "./evicted.js";
import { Headline } from "./headline.js";
import { Palette } from "./palette.js";
import { Prompt } from "./prompt.js";
import { Queue } from "./queue.js";
import { Ranking } from "./ranking.js";
import { Series } from "./series.js";
import { Login } from "./login.js";
import { Tenants } from "./tenants.js";
import { Throttle } from "./throttle.js";
import { Workers } from "./workers.js";

const $ = (id) => document.getElementById(id);

const palette = new Palette();
const ranking = new Ranking();
const series = new Series();
const headline = new Headline($("headline"), $("connection"), $("bound-text"), $("ahead-figure"));
const charts = new Charts($("share-chart"), $("ahead"), palette);
const chartTable = new ChartTable($("chart-details"), $("chart-table"));
const calls = new Calls($("calls-title"), $("calls-text"), $("calls"));
const clients = new Clients($("clients"), $("more-clients"), $("shares"), palette, (name) => calls.choose(name));
const tenants = new Tenants($("tenants-section"), $("tenants"));
const queue = new Queue($("queue"), $("queue-text"), palette);
const workers = new Workers($("workers"));
const evicted = new Evicted($("evicted-section"), $("evicted"));
const throttle = new Throttle($("throttle-text"), $("exhausted"), $("apps"));
const prompt = new Prompt($("prompt-form"), $("answer"), $("answer-facts"), $("answer-waterfall"));
const controls = new Controls($("controls"), $("buttons"), $("demo-state"));

let drawn = 0; // the request for the next frame

function draw(state) {
  drawn = 0;
  if (ranking.update(state.clients)) {
    palette.assign(ranking.names);
  }
  const { names } = ranking;
  headline.show(state);
  charts.show(series, names, state.fairness.rate);
  chartTable.show(state, names);
  tenants.show(state.tenants);
  clients.show(state.clients, names);
  queue.show(state, names);
  workers.show(state.workers);
  evicted.show(state.evicted);
  throttle.show(state.throttle);
  prompt.show(state.workers);
  document.documentElement.dataset.updates = String(Number(document.documentElement.dataset.updates ?? 0) + 1);
}

const connection = new Connection({
  changed(state, past) {
    if (past) {
      series.replace(past);
    } else {
      series.append(state);
    }
    cancelAnimationFrame(drawn);
    drawn = requestAnimationFrame(() => draw(state));
  },
  lost: () => headline.lost(),
  refused: () => login.ask(),
});

const login = new Login($("login"), () => {
  $("content").hidden = false;
  $("logout").hidden = false;
  connection.open();
  controls.start();
});

$("logout").addEventListener("click", () => login.logOut());
login.start();
