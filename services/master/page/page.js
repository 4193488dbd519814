"use strict";
(() => {
const $ = id => document.getElementById(id);
const FINAL = ["Succeeded", "Failed", "Stopped"], POLL_MS = 2000, HIDDEN_MS = 15000, MOST_MS = 30000, SHOWN = 100;
const MARKS = ["lost", "joined", "checkpoint", "evaluation"];
const first = JSON.parse($("data").textContent);
const isReport = first.is_report, events = new Map();
let now = first.status, heard = Date.now(), answered = heard, wait = POLL_MS, isSilent = false, cross = null;
const showAll = new Set(), sorted = {}, openTables = new Set(), charts = [];

/* ---- words */
const nf = (n, digits = 0) => n.toLocaleString("en", {maximumFractionDigits: digits, minimumFractionDigits: 0});
const num = n => n == null ? "-" : typeof n === "string" ? n : Math.abs(n) >= 1000 ? nf(n) : Math.abs(n) >= 1 ? nf(n, 2) :
  n === 0 ? "0" : Math.abs(n) >= 1e-3 ? String(+n.toPrecision(3)) : n.toExponential(1);
const percent = r => Math.floor(100 * r + 1e-9) + " %";
const howFar = p => p.ratio == null ? nf(p.records) + (p.records === 1 ? " record" : " records") : percent(p.ratio);
const span = s => { s = Math.max(0, Math.round(s));
  if (s < 60) return s + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + (s % 60 && s < 600 ? " " + s % 60 + "s" : "");
  if (s < 86400) return Math.floor(s / 3600) + "h" + (Math.floor(s / 60) % 60 ? " " + Math.floor(s / 60) % 60 + "m" : "");
  return Math.floor(s / 86400) + "d" + (Math.floor(s / 3600) % 24 ? " " + Math.floor(s / 3600) % 24 + "h" : ""); };
const bytes = n => !n ? "-" : n < 1e6 ? nf(n / 1e3) + " kB" : n < 1e9 ? nf(n / 1e6) + " MB" : nf(n / 1e9, 1) + " GB";
const ms = s => s ? nf(1000 * s, 1) + " ms" : "-";
const clock = (t, withDay) => { const d = new Date(1000 * t), time = d.toTimeString().slice(0, 8);
  return withDay ? (d.getMonth() + 1) + "/" + d.getDate() + " " + time.slice(0, 5) : time; };
const role = s => ["Failed", "Unknown", "lost", "silent"].includes(s) ? "bad" :
  ["Starting", "Pending", "Stopping", "Stopped", "starting", "waiting"].includes(s) ? "wait" : "good";

/* ---- elements */
const el = (tag, about = {}, ...inside) => { const e = document.createElement(tag); return filled(e, about, inside); };
const sv = (tag, about = {}, ...inside) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), about, inside);
function filled(e, about, inside) {
  for (const [k, v] of Object.entries(about)) if (v != null && v !== false) e.setAttribute(k, v);
  e.append(...inside.filter(x => x != null)); return e;
}
const put = (id, text, cls) => { const e = $(id); if (e.textContent !== text) e.textContent = text; if (cls != null) e.className = cls; };

/* ---- head */
function head() {
  const job = now.job, p = now.progress, last = now.evaluations[now.evaluations.length - 1];
  if ($("state").textContent !== job.state) put("said", job.name + " is " + job.state);
  put("name", job.name);
  put("state", job.state, "state " + role(job.state));
  const isOver = FINAL.includes(job.state), facts = [howFar(p)];
  if (!isOver && p.waits_for_data_s != null) facts.push("waits for data " + span(p.waits_for_data_s));
  else if (!isOver && p.stalled_s != null) facts.push("stalled " + span(p.stalled_s));
  else if (!isOver && p.eta_s != null) facts.push("ETA " + span(p.eta_s));
  facts.push("v" + nf(p.version));
  if (now.loss != null) facts.push("loss " + num(now.loss));
  if (last) for (const [k, v] of Object.entries(last.metrics)) facts.push(k + " " + num(v) + " (v" + nf(last.version) + ")");
  if (!isOver && p.records_per_s) facts.push(nf(p.records_per_s) + " records/s");
  put("facts", facts.join("   "));
  $("bar").value = p.ratio || 0; $("bar").hidden = p.ratio == null;
  put("epoch", [p.epochs && "epoch " + p.epoch + (p.is_endless ? "" : "/" + p.epochs),
    p.ratio != null && nf(p.records) + " of " + nf(p.records_total) + " records"].filter(Boolean).join(", "));
  document.title = job.name + " " + job.state + " " + howFar(p);
  const trouble = [];
  if (job.state === "Failed") trouble.push(job.reason || "The job has failed.");
  if (!isOver && p.stalled_s != null) trouble.push("Nothing has been applied for " + span(p.stalled_s) + ".");
  if (now.nonfinite_losses) trouble.push(nf(now.nonfinite_losses) + " minibatches had a loss that is NaN or infinite.");
  if (!isOver) for (const w of now.workers) if (w.note && trouble.length < 5) trouble.push("worker-" + w.id + ": " + w.note);
  $("banner").hidden = !trouble.length;
  put("banner", trouble.join("\n"));
}
function fresh() {
  if (isReport) return;
  const ago = (Date.now() - (isSilent ? answered : heard)) / 1000, isOver = FINAL.includes(now.job.state);
  put("fresh", isSilent ? (isOver ? "the job has ended" : "no answer for " + span(ago)) : "updated " + span(ago) + " ago", "push " + (isSilent && !isOver ? "wait" : "dim"));
}

/* ---- tables: [title, value to sort by, text, is a number] */
const age = w => w.started_at || w.joined_at ? now.now - (w.started_at || w.joined_at) : null;
const step = name => w => w.step_s[name];
const stepParts = () => now.group ? ["read", "compute", "send", "sum", "wait"] : ["read", "pull", "compute", "push", "wait"];
const columns = {
  get workers() { return [["id", w => +w.id, w => w.id + (w.rank == null ? "" : ", rank " + w.rank)], ["state", w => w.state, w => w.state, 0, 1], ["task", w => w.task, w => num(w.task), 1],
    ["rec/s", w => w.records_per_s, w => nf(w.records_per_s), 1],
    ...stepParts().map(k => [k, step(k), w => ms(w.step_s[k]), 1]),
    ["memory", w => w.memory_bytes, w => bytes(w.memory_bytes), 1],
    ["restarts", w => w.restarts, w => num(w.restarts), 1],
    ["age", w => age(w), w => age(w) == null ? "-" : span(age(w)), 1],
    ["note", w => w.note || "", w => w.note || ""]]; },
  ps: [["id", p => +p.id, p => p.id], ["state", p => p.state, p => p.state, 0, 1], ["version", p => p.version, p => nf(p.version), 1],
    ["rows", p => p.rows, p => nf(p.rows), 1], ["memory", p => p.memory_bytes, p => bytes(p.memory_bytes), 1],
    ["cpu", p => p.cpu_share, p => percent(p.cpu_share), 1],
    ["requests/s", p => p.requests_per_s, p => num(p.requests_per_s), 1],
    ["p99", p => p.p99_s, p => p.p99_s == null ? "-" : ms(p.p99_s), 1],
    ["checkpoint", p => p.checkpoint_version, p => p.checkpoint_version == null ? "-" : "v" + nf(p.checkpoint_version), 1],
    ["note", p => p.note || "", p => p.note || ""]],
  group: [["generation", g => g.generation, g => g.generation || "-"], ["members, by rank", g => g.members.length, g => g.members.map(m => "worker-" + m).join(", ") || "-"],
    ["version", g => g.version, g => "v" + nf(g.version), 1], ["checkpoint", g => g.checkpoint_version, g => g.checkpoint_version == null ? "-" : "v" + nf(g.checkpoint_version), 1]],
  tables: [["name", t => t.name, t => t.name], ["rows", t => t.rows, t => nf(t.rows), 1], ["memory", t => t.memory_bytes, t => bytes(t.memory_bytes), 1],
    ["known", t => t.hit_rate, t => t.hit_rate == null ? "-" : percent(t.hit_rate), 1], ["new/s", t => t.new_rows_per_s, t => nf(t.new_rows_per_s), 1]],
  events: [["time", e => e.at, e => clock(e.at, now.now - e.at > 43200)], ["what", e => e.kind, e => e.kind], ["why", e => e.text, e => e.text]],
  evaluations: [["version", e => e.version, e => "v" + nf(e.version)], ["metrics", e => "", e => Object.entries(e.metrics).map(([k, v]) => k + " " + num(v)).join(", ")]],
  settings: [["setting", s => s.name, s => s.name], ["value", s => s.value, s => s.value], ["from", s => s.origin, s => s.origin]],
};
const rowsOf = {workers: () => now.workers, ps: () => now.ps, group: () => now.group ? [now.group] : [], tables: () => now.tables || [], evaluations: () => [...now.evaluations].reverse(),
  events: () => [...events.values()].sort((a, b) => b.seq - a.seq), settings: () => now.configuration.settings};
function table(name) {
  const cols = columns[name], by = sorted[name], body = $(name);
  let rows = rowsOf[name]();
  const section = body.closest("section");
  if (["tables", "evaluations", "group"].includes(name)) section.hidden = !rows.length;
  if (name === "ps") section.hidden = !!now.group;
  if (by) { const [, key] = cols[by.column], sign = by.isDown ? -1 : 1;
    rows = [...rows].sort((a, b) => { const x = key(a), y = key(b);
      return x == null ? 1 : y == null ? -1 : sign * (x < y ? -1 : x > y ? 1 : 0); }); }
  const shown = showAll.has(name) ? rows : rows.slice(0, SHOWN);
  const focused = document.activeElement && body.contains(document.activeElement) ? document.activeElement.dataset.column : null;
  const top = el("tr", {}, ...cols.map(([title, , , isNumber], place) => {
    const button = el("button", {type: "button", "data-column": place}, title);
    button.addEventListener("click", () => { const was = sorted[name];
      sorted[name] = {column: place, isDown: was && was.column === place ? !was.isDown : !!isNumber}; table(name); });
    return el("th", {scope: "col", class: isNumber ? "n" : null,
      "aria-sort": by && by.column === place ? (by.isDown ? "descending" : "ascending") : null}, button);
  }));
  const lines = shown.map(row => el("tr", {}, ...cols.map(([, , text, isNumber, isState]) => {
    const said = text(row); return el("td", {class: isNumber ? "n" : isState ? role(said) : null}, said); })));
  if (!rows.length) lines.push(el("tr", {}, el("td", {colspan: cols.length, class: "dim"}, "none")));
  body.replaceChildren(el("thead", {}, top), el("tbody", {}, ...lines));
  if (focused != null) { const again = body.querySelector(`button[data-column="${focused}"]`); if (again) again.focus(); }
  let more = section.querySelector("button.more");
  if (rows.length > SHOWN && !more) {
    more = el("button", {type: "button", class: "more"});
    more.addEventListener("click", () => { showAll.has(name) ? showAll.delete(name) : showAll.add(name); table(name); });
    section.append(more);
  }
  if (more) { more.hidden = rows.length <= SHOWN; more.textContent = showAll.has(name) ? "Show " + SHOWN : "Show all " + nf(rows.length); }
}

/* ---- time axis: times in which there was no master for long take little room */
function timeAxis(c) {
  const ends = c.at, n = ends.length;
  if (!n) return null;
  const spans = [...c.span_s].sort((a, b) => a - b), cap = Math.max(30, 20 * spans[n >> 1]);
  const t = [ends[0] - c.span_s[0], ...ends], at = [0];
  for (let i = 1; i <= n; i++) at.push(at[i - 1] + Math.min(t[i] - t[i - 1], cap));
  const all = at[n] || 1;
  const place = x => { if (x <= t[0]) return 0; if (x >= t[n]) return 1;
    let lo = 0, hi = n; while (hi - lo > 1) { const mid = lo + hi >> 1; t[mid] <= x ? lo = mid : hi = mid; }
    return (at[lo] + (at[hi] - at[lo]) * (x - t[lo]) / (t[hi] - t[lo] || 1)) / all; };
  const time = f => { const a = f * all; let lo = 0, hi = n; while (hi - lo > 1) { const mid = lo + hi >> 1; at[mid] <= a ? lo = mid : hi = mid; }
    return t[lo] + (t[hi] - t[lo]) * (a - at[lo]) / (at[hi] - at[lo] || 1); };
  return {t, place, time, isLong: t[n] - t[0] > 86400};
}
function markOf(e) {
  if (e.kind === "checkpoint") return / could not /.test(e.text) ? null : "checkpoint";
  if (e.kind === "evaluation") return "evaluation";
  if (["worker", "ps"].includes(e.kind)) {
    if (/\blost\b/.test(e.text)) return "lost";
    if (/ (after|joined|is back|has taken over)\b/.test(e.text)) return "joined";
  }
  return null;
}

/* ---- charts */
const H = 170, LEFT = 46, RIGHT = 6, TOP = 8, BOTTOM = 20;
function ticks(lo, hi) {
  const raw = (hi - lo) / 3 || 1, power = 10 ** Math.floor(Math.log10(raw)), unit = [1, 2, 5, 10].find(k => k * power >= raw) * power;
  const found = []; for (let x = Math.ceil(lo / unit) * unit; x <= hi + unit * 1e-9; x += unit) found.push(Math.abs(x) < unit * 1e-9 ? 0 : x);
  return found;
}
const logTicks = (lo, hi) => { const found = [];
  for (let p = Math.floor(lo); p <= hi; p++) for (const k of hi - lo < 1.5 ? [1, 2, 5] : [1]) { const x = p + Math.log10(k); if (x >= lo && x <= hi) found.push(x); }
  return found; };
const short = n => Math.abs(n) >= 1e9 ? num(+(n / 1e9).toPrecision(3)) + "G" : Math.abs(n) >= 1e6 ? num(+(n / 1e6).toPrecision(3)) + "M" :
  Math.abs(n) >= 1e4 ? num(+(n / 1e3).toPrecision(3)) + "k" : num(+n.toPrecision(3));
function smooth(ys) { let mean = null; return ys.map(y => y == null ? null : mean = mean == null ? y : mean + 0.2 * (y - mean)); }
const summary = (name, ys, unit = "") => { const known = ys.filter(y => y != null);
  return known.length ? name + " now " + num(known[known.length - 1]) + unit + ", least " + num(Math.min(...known)) + ", most " + num(Math.max(...known)) : name + " not known yet"; };

class Chart {
  constructor(title, make) {
    this.make = make; this.title = title; this.id = "c" + charts.length;
    this.svg = sv("svg", {role: "img"});
    this.legend = el("ul", {class: "legend"});
    this.button = el("button", {type: "button", "aria-expanded": "false", "aria-controls": this.id}, "as table");
    this.button.setAttribute("aria-label", title + " as table");
    this.data = el("div", {id: this.id, class: "data", tabindex: "0", role: "region", "aria-label": title + ", data", hidden: ""});
    this.button.addEventListener("click", () => { const isOpen = openTables.has(this.id);
      isOpen ? openTables.delete(this.id) : openTables.add(this.id);
      this.button.setAttribute("aria-expanded", String(!isOpen)); this.data.hidden = isOpen; this.draw(); });
    this.heading = el("h3", {}, title);
    this.box = el("div", {class: "chart"}, el("div", {class: "head"}, this.heading, this.button), this.svg, this.legend, this.data);
    $("charts").append(this.box);
    this.svg.addEventListener("pointermove", e => { const b = this.svg.getBoundingClientRect();
      cross = Math.min(1, Math.max(0, (e.clientX - b.left - LEFT) / (b.width - LEFT - RIGHT))); if (this.about && this.about.isTime) crosses(); });
    this.svg.addEventListener("pointerleave", () => { cross = null; crosses(); });
    charts.push(this);
  }
  draw() {
    const about = this.about = this.make();
    this.heading.textContent = about.title || this.title;
    this.svg.setAttribute("aria-label", this.heading.textContent + ". " + about.summary);
    const w = this.width = Math.max(200, this.svg.clientWidth || 330);
    this.svg.setAttribute("viewBox", `0 0 ${w} ${H}`);
    const parts = about.cells ? this.cells(about, w) : this.lines(about, w);
    this.svg.replaceChildren(...parts);
    this.words(null);
    if (openTables.has(this.id)) this.data.replaceChildren(asTable(about));
  }
  lines(about, w) {
    const iw = w - LEFT - RIGHT, ih = H - TOP - BOTTOM, X = f => LEFT + f * iw, out = [];
    const ys = about.series.flatMap(s => s.values).filter(y => y != null);
    if (!ys.length) return [sv("text", {x: w / 2, y: H / 2, "text-anchor": "middle", class: "axis"}, "nothing yet")];
    const isLog = about.isLog && Math.min(...ys) > 0, f = y => isLog ? Math.log10(y) : y;
    let lo = isLog ? Math.min(...ys.map(f)) : about.least != null ? Math.min(about.least, ...ys) : Math.min(...ys), hi = Math.max(...ys.map(f));
    if (about.stacked) hi = Math.max(...about.series[0].values.map((_, i) => about.series.reduce((a, s) => a + (s.values[i] || 0), 0)));
    if (hi - lo < 1e-12) { hi += Math.abs(hi) * 0.05 || 1; if (about.least == null) lo -= Math.abs(lo) * 0.05 || 1; }
    const Y = y => TOP + ih * (1 - (f(y) - lo) / (hi - lo));
    for (const t of isLog ? logTicks(lo, hi) : ticks(lo, hi)) { const y = TOP + ih * (1 - (t - lo) / (hi - lo));
      out.push(sv("line", {x1: LEFT, x2: w - RIGHT, y1: y, y2: y, class: "grid"}),
        sv("text", {x: LEFT - 5, y: y + 4, "text-anchor": "end", class: "axis"}, short(isLog ? 10 ** t : t))); }
    const labels = Math.max(2, Math.floor(iw / 110));
    for (let i = 0; i <= labels; i++) out.push(sv("text", {x: X(i / labels), y: H - 5, "text-anchor": i === 0 ? "start" : i === labels ? "end" : "middle", class: "axis"}, about.label(i / labels)));
    if (about.isTime) for (const e of events.values()) { const kind = markOf(e);
      if (kind && e.at >= about.axis.t[0] && e.at <= about.axis.t[about.axis.t.length - 1] + 1) { const x = X(about.axis.place(e.at));
        out.push(sv("line", {x1: x, x2: x, y1: TOP, y2: H - BOTTOM, class: "mark m-" + kind}, sv("title", {}, clock(e.at) + " " + e.text))); } }
    if (about.stacked) this.stack(about, X, Y, out);
    else about.series.forEach((s, k) => { let d = "", isOn = false;
      s.values.forEach((y, i) => { if (y == null) { isOn = false; return; } d += (isOn ? "L" : "M") + X(about.xs[i]).toFixed(1) + " " + Y(y).toFixed(1); isOn = true; });
      const c = s.colour || k + 1;
      out.push(sv("path", {d, class: `series s${c}${s.isFaint ? " faint" : ""}`, "stroke-dasharray": s.dash}));
      if (s.hasDots || s.values.filter(y => y != null).length === 1) s.values.forEach((y, i) => y == null || out.push(sv("circle", {cx: X(about.xs[i]), cy: Y(y), r: 2.5, class: "f" + c}))); });
    this.line = sv("line", {y1: TOP, y2: H - BOTTOM, class: "cross", visibility: "hidden"});
    out.push(this.line);
    return out;
  }
  stack(about, X, Y, out) {
    const base = about.series[0].values.map(() => 0), t = about.edges;
    about.series.forEach((s, k) => { let up = "", down = "";
      s.values.forEach((y, i) => { const b = base[i], top = b + (y || 0);
        up += `${i ? "L" : "M"}${X(t[i]).toFixed(1)} ${Y(top).toFixed(1)}L${X(t[i + 1]).toFixed(1)} ${Y(top).toFixed(1)}`;
        down = `L${X(t[i + 1]).toFixed(1)} ${Y(b).toFixed(1)}L${X(t[i]).toFixed(1)} ${Y(b).toFixed(1)}` + down; base[i] = top; });
      if (up) out.push(sv("path", {d: up + down + "Z", class: "area f" + (s.colour || k + 1)})); });
  }
  cells(about, w) {
    const n = about.done.length, out = [], iw = w - 8, ih = H - 12;
    let size = 24; while (size > 2 && Math.floor(iw / size) * Math.floor(ih / size) < n) size -= 0.25;
    const per = Math.max(1, Math.floor(iw / size)), gap = size > 5 ? 1 : 0.3;
    for (let i = 0; i < n; i++) {
      const x = 4 + (i % per) * size, y = 4 + Math.floor(i / per) * size, d = about.done[i], m = about.marks[i], side = size - gap;
      out.push(sv("rect", {x, y, width: side, height: side, class: "todo"}));
      const part = d === "d" ? 1 : +d / 10;
      if (part) out.push(sv("rect", {x, y: y + side * (1 - part), width: side, height: side * part, class: "f1"}));
      if (m === "l" || m === "b") out.push(sv("rect", {x: x + .7, y: y + .7, width: Math.max(1, side - 1.4), height: Math.max(1, side - 1.4), class: "ring"}));
      if (m === "r" || m === "b") out.push(sv("circle", {cx: x + side / 2, cy: y + side / 2, r: Math.max(.9, side / 5), class: "f2"}));
    }
    return out.length ? out : [sv("text", {x: w / 2, y: H / 2, "text-anchor": "middle", class: "axis"}, now.tasks.count ? "not known: the master was lost" : "no tasks to train on")];
  }
  words(place) {
    const about = this.about; if (!about) return;
    this.legend.replaceChildren(...about.series.filter(s => s.name).map((s, k) => { const c = s.colour || k + 1;
      const sample = s.sample ? s.sample() : about.stacked ? sv("rect", {width: 18, height: 10, class: "f" + c}) :
        sv("line", {x1: 0, x2: 18, y1: 5, y2: 5, class: "series s" + c, "stroke-dasharray": s.dash});
      const y = place == null ? s.now != null ? s.now : [...s.values].reverse().find(v => v != null) : s.values[place];
      return el("li", {}, sv("svg", {viewBox: "0 0 18 10", "aria-hidden": "true"}, sample), s.name + (y == null ? "" : " " + num(y) + (s.unit || ""))); }),
      ...(place == null || !about.isTime ? [] : [el("li", {}, clock(about.axis.t[place + 1], about.axis.isLong))]));
  }
  crossed() {
    const about = this.about; if (!about || !about.isTime || !this.line) return;
    if (cross == null) { this.line.setAttribute("visibility", "hidden"); this.words(null); return; }
    let near = 0; about.xs.forEach((x, i) => { if (Math.abs(x - cross) < Math.abs(about.xs[near] - cross)) near = i; });
    const x = LEFT + about.xs[near] * (this.width - LEFT - RIGHT);
    this.line.setAttribute("x1", x); this.line.setAttribute("x2", x); this.line.setAttribute("visibility", "visible"); this.words(near);
  }
}
const crosses = () => charts.forEach(c => c.crossed());
function asTable(about) {
  if (about.cells) return el("table", {}, el("tbody", {}, ...about.series.map(s => el("tr", {}, el("th", {scope: "row"}, s.name), el("td", {class: "n"}, num(s.now))))));
  const named = about.series.filter(s => s.name), n = named.length ? named[0].values.length : 0, every = Math.max(1, Math.ceil(n / 60)), rows = [];
  for (let i = n - 1; i >= 0; i -= every) rows.push(el("tr", {}, el("th", {scope: "row"}, about.name(i)), ...named.map(s => el("td", {class: "n"}, num(s.values[i])))));
  return el("table", {}, el("thead", {}, el("tr", {}, el("th", {scope: "col"}, about.isTime ? "time" : "version"), ...named.map(s => el("th", {scope: "col", class: "n"}, s.name)))), el("tbody", {}, ...rows));
}
function overTime(about) {
  const c = now.curves, axis = timeAxis(c);
  if (!axis) return {...about, isTime: false, xs: [], edges: [], label: () => "", name: () => ""};
  const isShort = !axis.isLong, edges = axis.t.map(axis.place);
  return {...about, isTime: true, axis, edges, xs: edges.slice(1), label: f => isShort ? clock(axis.time(f)).slice(0, axis.t[axis.t.length - 1] - axis.t[0] > 1200 ? 5 : 8) : clock(axis.time(f), true), name: i => clock(c.at[i], !isShort)};
}
function makeCharts() {
  new Chart("Throughput, records/s", () => { const v = now.curves.records_per_s;
    return overTime({least: 0, series: [{name: "records/s", values: v}], summary: summary("records/s", v)}); });
  new Chart("Loss (log axis, smoothed)", () => { const v = now.curves.loss, s = smooth(v);
    return overTime({isLog: true, series: [{name: "", values: v, isFaint: true, colour: 1}, {name: "loss", values: s, colour: 1}], summary: summary("smoothed loss", s),
      title: v.some(y => y != null && y <= 0) ? "Loss (smoothed)" : null}); });
  new Chart("Metrics by version", () => { const e = [...now.evaluations].sort((a, b) => a.version - b.version), names = [...new Set(e.flatMap(x => Object.keys(x.metrics)))].slice(0, 5);
    const lo = e.length ? e[0].version : 0, hi = e.length ? e[e.length - 1].version : 1, all = hi - lo || 1;
    const series = names.map(k => ({name: k, hasDots: true, values: e.map(x => typeof x.metrics[k] === "number" ? x.metrics[k] : null)}));
    return {series, xs: e.map(x => e.length > 1 ? (x.version - lo) / all : 0.5), label: f => e.length > 1 ? "v" + nf(Math.round(lo + f * all)) : f === 0 && e.length ? "v" + nf(lo) : "", name: i => "v" + nf(e[i].version),
      summary: series.length ? series.map(s => summary(s.name, s.values)).join("; ") : "none yet"}; });
  new Chart("Waiting", () => { const c = now.curves;
    if (now.job.mode === "async" && c.staleness_p50.some(y => y != null)) return overTime({title: "Staleness, versions", least: 0, summary: summary("median staleness", c.staleness_p50),
      series: [{name: "median", values: c.staleness_p50}, {name: "95th percentile", values: c.staleness_p95, dash: "5 3"}]});
    const v = c.wait.map(y => y == null ? null : 100 * y);
    return overTime({title: "Waiting, % of a worker's time", least: 0, series: [{name: "waiting", values: v, unit: " %"}], summary: summary("waiting", v, " percent")}); });
  new Chart("Workers over time", () => { const c = now.curves;
    return overTime({least: 0, stacked: true, series: [{name: "training", values: c.training, colour: 3}, {name: "starting", values: c.starting, colour: 5}, {name: "lost", values: c.lost, colour: 2}],
      summary: summary("training", c.training) + "; " + summary("lost", c.lost)}); });
  new Chart("Tasks", () => { const t = now.tasks, again = [...t.marks].filter(m => m === "r" || m === "b").length;
    const box = cls => () => sv("rect", {x: 4, width: 10, height: 10, class: cls});
    return {cells: true, done: t.done_map || "", marks: t.marks || "", title: "Tasks" + (t.per_cell > 1 ? ", " + nf(t.per_cell) + " to a cell" : ""),
      summary: nf(t.todo) + " to do, " + nf(t.leased) + " leased, " + nf(t.done) + " done, tried again in " + nf(again) + " cells",
      series: [{name: "to do", now: t.todo, values: [], sample: box("todo")}, {name: "leased", now: t.leased, values: [], sample: () => sv("rect", {x: 4.7, y: .7, width: 8.6, height: 8.6, class: "ring"})},
        {name: "done", now: t.done, values: [], sample: box("f1")}, {name: "tried again", now: again, values: [], sample: () => sv("circle", {cx: 9, cy: 5, r: 3, class: "f2"})}]}; });
  const list = el("ul", {class: "legend marks"}, ...MARKS.map(k => el("li", {}, sv("svg", {viewBox: "0 0 18 10", "aria-hidden": "true"}, sv("line", {x1: 9, x2: 9, y1: 0, y2: 10, class: "mark m-" + k})),
    {lost: "worker or ps lost", joined: "joined", checkpoint: "checkpoint", evaluation: "evaluation"}[k])));
  $("charts").append(list);
  $("charts").hidden = false;
}

/* ---- all of it */
function take(status) {
  now = status; heard = Date.now();
  for (const e of status.events) events.set(e.seq, e);
  if (events.size > 200) for (const seq of [...events.keys()].sort((a, b) => a - b).slice(0, events.size - 200)) events.delete(seq);
  show();
}
function show() { head(); fresh(); Object.keys(columns).forEach(table); charts.forEach(c => c.draw()); put("command", now.configuration.command); }
async function poll() {
  const seq = Math.max(0, ...events.keys());
  try {
    const answer = await fetch("/api/status?since=" + seq + "&look=" + (now.look || 0), {cache: "no-store", signal: AbortSignal.timeout(9000)});
    if (!answer.ok) throw new Error(answer.status);
    const status = await answer.json();
    isSilent = false; answered = Date.now(); wait = POLL_MS;
    if (status.unchanged) fresh(); else take(status);
  } catch { isSilent = true; wait = Math.min(MOST_MS, wait * 1.6); fresh(); }
  setTimeout(poll, document.hidden ? Math.max(wait, HIDDEN_MS) : wait);
}
const THEMES = ["system", "light", "dark"];
function theme(to) {
  if (to === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = to;
  $("theme").textContent = "Colours: " + to; $("theme").dataset.to = to;
  try { localStorage.setItem("edlz-theme", to); } catch { /* a page from a file may keep nothing */ }
}
let kept = null; try { kept = localStorage.getItem("edlz-theme"); } catch { /* as above */ }
theme(THEMES.includes(kept) ? kept : "system");
$("theme").hidden = false;
$("theme").addEventListener("click", () => theme(THEMES[(THEMES.indexOf($("theme").dataset.to) + 1) % 3]));
if (navigator.clipboard) { $("copy").hidden = false;
  $("copy").addEventListener("click", async () => { await navigator.clipboard.writeText($("command").textContent); $("copy").textContent = "Copied"; setTimeout(() => $("copy").textContent = "Copy", 2000); }); }
makeCharts();
take(first.status);
new ResizeObserver(() => charts.forEach(c => c.draw())).observe($("charts"));
if (!isReport) { setInterval(fresh, 1000); setTimeout(poll, POLL_MS); }
})();
