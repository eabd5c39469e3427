"use strict";
// Reads /v1/status and one page of /v1/queues every two seconds. Text from the node enters the page as text alone.

const everyMs = 2000;
const pageSize = 50;
const at = (id) => document.getElementById(id);

let after = null; // name after which the page of queues begins; null is the first page
let next = "";    // name after which the next page begins
let before = null; // the answers of the round before, for rates

function make(tag, text, cls) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
}

function count(n) { return n.toLocaleString("en"); }

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let u = 0;
  while (n >= 1024 && u < units.length - 1) { n /= 1024; u++; }
  return (u === 0 ? n : n.toFixed(1)) + " " + units[u];
}

function rate(n) {
  if (n === null) return "–";
  return n < 10 && n > 0 ? n.toFixed(1) : count(Math.round(n));
}

function seconds(s) {
  if (s === null) return "–";
  return s < 1 ? (s * 1000).toLocaleString("en", { maximumSignificantDigits: 2 }) + " ms" : s.toFixed(1) + " s";
}

const sum = (o) => Object.values(o || {}).reduce((a, b) => a + b, 0);

// since is what a counter rose by since the round before; null without one, or after a restart of the node.
function since(now, was) { return was === undefined || now < was ? null : now - was; }

// slowest99 is the upper bound of the bucket in which the 99th of a hundred flushes of this round lies.
function slowest99(now, was) {
  const h = now.flushSeconds, w = was && was.flushSeconds;
  if (!w || h.count <= w.count || !h.bounds) return null;
  const want = 0.99 * (h.count - w.count);
  for (let i = 0; i < h.bounds.length; i++) {
    if (h.counts[i] - w.counts[i] >= want) return h.bounds[i];
  }
  return h.bounds.length ? h.bounds[h.bounds.length - 1] : null;
}

function numbers(status, seconds_) {
  const c = status.counters, was = before && before.status.counters;
  const published = was ? since(sum(c.published), sum(was.published)) : null;
  const rounds = was ? since(c.flushRounds, was.flushRounds) : null;
  const delivered = was ? since(c.delivered, was.delivered) : null;
  const perSecond = (n) => rate(n === null || !seconds_ ? null : n / seconds_);
  return [
    ["published/s", perSecond(published)],
    ["delivered/s", perSecond(delivered)],
    ["messages a flush", published === null || !rounds ? "–" : rate(published / rounds)],
    ["flush p99 at most", seconds(slowest99(c, was))],
    ["ready", count(status.queues.ready)],
    ["unsettled", count(status.queues.unsettled)],
    ["indeterminate", count(c.indeterminate)],
    ["connections", count(c.connections)],
  ];
}

function list(dl, rows) {
  dl.replaceChildren(...rows.map(([name, value]) => {
    const d = make("div");
    d.append(make("dt", name), make("dd", value));
    return d;
  }));
}

function health(status) {
  const problems = status.alive.concat(status.ready);
  const line = at("health");
  const text = problems.length === 0 ? "All is well." :
    problems.length === 1 ? "One thing is not as it should be." : problems.length + " things are not as they should be.";
  if (line.textContent !== text) line.textContent = text;
  line.className = problems.length === 0 ? "good" : "bad";
  at("problems").hidden = problems.length === 0;
  at("problems").replaceChildren(...problems.map((p) => {
    const li = make("li");
    li.append(make("b", p.object + ": " + p.what), [p.effect, p.remedy].map((s) => "; " + s.replace(/\.$/, "")).join("") + ".");
    return li;
  }));
}

function note(q) {
  if (q.live && q.live.trouble) return q.live.trouble;
  const c = (q.status.conditions || [])[0];
  if (c) return c.reason + ": " + c.message;
  return q.live ? "" : "the node that leads it did not answer";
}

function queueRow(q, seconds_) {
  const l = q.live, was = before && before.live.get(q.metadata.uid);
  const tr = make("tr");
  const name = make("th", q.metadata.name);
  name.scope = "row";
  const rose = l && was ? since(l.in, was.in) : null;
  const n = (v) => make("td", v, "n");
  tr.append(name, make("td", q.status.phase, q.status.phase === "Ready" ? "good" : "bad"),
    make("td", q.status.leader || "–"));
  // A number of a queue is there only where the queue is served.
  if (l) {
    tr.append(n(count(l.ready)), n(count(l.unsettled)), n(rate(rose === null || !seconds_ ? null : rose / seconds_)),
      n(bytes(l.bytes)), n(bytes(l.diskBytes)), n(count(l.consumers)), n(count(l.producers)));
  } else {
    for (let i = 0; i < 7; i++) tr.append(n("–"));
  }
  tr.append(make("td", note(q), l && l.trouble ? "bad" : ""));
  return tr;
}

function show(status, queues) {
  const now = performance.now();
  const passed = before ? (now - before.at) / 1000 : 0;
  document.body.classList.remove("old");
  document.title = "weida " + status.node;
  at("node").textContent = status.node;
  health(status);
  list(at("numbers"), numbers(status, passed));
  const phases = Object.entries(status.queues.phases).filter(([, n]) => n > 0).map(([p, n]) => count(n) + " " + p);
  at("queues-line").textContent = count(status.queues.count) + " in the registry" +
    (phases.length ? ": " + phases.join(", ") : "; make one with weida apply") + ".";
  at("queues").replaceChildren(...queues.items.map((q) => queueRow(q, passed)));
  next = queues.next || "";
  at("more").disabled = next === "";
  at("back").disabled = after === null;
  const refusals = Object.entries(status.counters.refusals || {}).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  at("refusals-section").hidden = refusals.length === 0;
  list(at("refusals"), refusals.map(([code, n]) => [code, count(n)]));
  const v = status.version;
  at("build").textContent = "weida " + v.version + ", commit " + v.commit + ", " + v.go;
  before = { at: now, status, live: new Map(queues.items.filter((q) => q.live).map((q) => [q.metadata.uid, q.live])) };
}

async function ask(path) {
  const r = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" });
  if (!r.ok) throw new Error(path + " answered " + r.status);
  return r.json();
}

let timer = 0;

async function round() {
  clearTimeout(timer);
  try {
    const from = after === null ? "" : "&after=" + encodeURIComponent(after);
    const [status, queues] = await Promise.all([ask("v1/status"), ask("v1/queues?limit=" + pageSize + from)]);
    show(status, queues);
  } catch (e) {
    document.body.classList.add("old");
    at("health").className = "bad";
    at("health").textContent = "The node does not answer (" + e.message + "). What is shown below is old.";
    before = null;
  }
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(round, everyMs);
}

at("more").addEventListener("click", () => { if (next !== "") { after = next; round(); } });
at("back").addEventListener("click", () => { after = null; round(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) round(); });
round();
