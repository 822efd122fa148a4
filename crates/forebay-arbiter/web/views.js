// The views. Each is a function that fills an element and gives { draw, end }: draw is called when the
// state has changed, at most once a frame. Text from outside only ever becomes text.

import { ago, amount, clip, css, gantt, lines, span } from "./charts.js";
import { colour, limitsOf, look, now, state } from "./state.js";

export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "style") Object.assign(e.style, v);
    else if (v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

const stateClass = (s) => ({ admitted: "good", healthy: "good", leading: "good", awaited: "warn", suspect: "warn", draining: "warn", drained: "soft", standby: "warn" })[s] ?? "bad";
export const pill = (word) => el("span", { class: `pill ${stateClass(word)}` }, word);
const swatch = (id) => el("i", { class: "swatch", style: { background: colour(id) } });
// A name as it fits, and a sentence in which names may stand; the whole is in the title.
const named = (id) => el("span", { class: "name", title: id }, id);
const prose = (text) => { const short = text.replace(/\S{41,}/g, (word) => clip(word)); return el("span", { title: short === text ? undefined : text }, short); };
const panel = (title, note, ...body) => el("section", { class: "panel" }, el("h2", {}, title, note ? el("small", {}, note) : ""), ...body);

const order = new Intl.Collator(undefined, { numeric: true }).compare;
// What is the same stays: only what differs is written.
const say = (e, text) => { if (e.said !== text) e.textContent = e.said = text; };
const hint = (e, text) => { if (e.hinted !== text) e.title = e.hinted = text; };

// A list of any length of which only the rows in sight exist.
function list(columns, items, onPick, empty) {
  const template = columns.map((c) => c.width).join(" ");
  const height = 32;
  let sort = columns.findIndex((c) => c.sort) , down = columns[sort]?.down ?? false, filter = "", shown = [], at = -1;
  const space = el("div", { class: "space" });
  const head = el("div", { class: "row head", style: { gridTemplateColumns: template }, role: "row" },
    ...columns.map((c, i) => el("button", { type: "button", class: c.num ? "num" : "", onclick: () => { down = sort === i ? !down : !!c.down; sort = i; draw(true); } }, c.title)));
  const heads = [...head.children];
  const box = el("div", { class: "list", tabindex: "0", role: "table" }, head, space);
  // How much is in sight changes with the window, and to ask is to have the page laid out.
  let spaceTall = -1, boxTall = 0, scrolled = 0;
  new ResizeObserver(() => { boxTall = box.clientHeight; requestAnimationFrame(sight); }).observe(box);
  const search = el("input", { type: "search", placeholder: "filter ( / )", "aria-label": "Filter", oninput: () => { filter = search.value.toLowerCase(); draw(true); } });
  // From what was searched for to what was found; its own arrow keys lead nowhere.
  search.addEventListener("keydown", (e) => {
    if (!["Enter", "Escape", "ArrowDown", "ArrowUp"].includes(e.key)) return;
    if (e.key !== "Escape") { at = shown.length ? 0 : -1; box.scrollTop = 0; sight(); }
    box.focus();
    e.preventDefault(); e.stopPropagation();
  });
  const rows = [], nothing = el("div", { class: "empty" }, empty);
  // Whoever points at a row gets that one: the order is kept for so long, and who is new comes last.
  const pointed = () => box.matches(":hover") || (at >= 0 && document.activeElement === box);
  function draw(anew) {
    const key = columns[sort]?.value, id = columns[0].id;
    const kept = anew || !pointed() ? undefined : new Map(shown.map((item, i) => [id(item), i]));
    shown = items().filter((i) => !filter || columns.some((c) => String(c.value(i) ?? "").toLowerCase().includes(filter)));
    if (key) {
      const keyed = shown.map((i) => [key(i), i]), place = (i) => kept?.get(id(i)) ?? Infinity;
      keyed.sort(([x, a], [y, b]) => { if (place(a) !== place(b)) return place(a) - place(b); const d = typeof x === "number" ? x - y : order(String(x), String(y)); return down ? -d : d; });
      shown = keyed.map(([, i]) => i);
    }
    heads.forEach((b, i) => say(b, columns[i].title + (i === sort ? (down ? " ↓" : " ↑") : "")));
    const tall = Math.max(shown.length * height, shown.length ? 0 : 60);
    if (tall !== spaceTall) space.style.height = `${spaceTall = tall}px`;
    sight();
  }
  function sight() {
    const first = Math.max(0, Math.floor(scrolled / height) - 4), last = Math.min(shown.length, first + Math.ceil((boxTall ||= box.clientHeight) / height) + 10);
    columns.forEach((c) => c.prepare?.());
    // Rows are places on the screen: whoever is there now is written into them.
    for (let i = first; i < last; i++) {
      const item = shown[i];
      let row = rows[i - first];
      if (!row) {
        row = el("div", { class: "row item", role: "row", style: { gridTemplateColumns: template }, onclick: () => onPick(row.of) }, ...columns.map((c) => el("span", { class: c.num ? "num" : "", role: "cell" })));
        row.cells = [...row.children];
        rows.push(row); space.append(row);
      }
      row.of = columns[0].id(item);
      if (row.place !== i) row.style.transform = `translateY(${(row.place = i) * height}px)`;
      if (row.marked !== (i === at)) row.classList.toggle("at", row.marked = i === at);
      columns.forEach((c, k) => {
        const cell = row.cells[k];
        if (c.fill) return c.fill(cell, item);
        const text = c.cell ? c.cell(item) : String(c.value(item) ?? "–");
        say(cell, text);
        hint(cell, c.hint?.(item) ?? (text.length > 8 ? text : ""));
      });
    }
    while (rows.length > Math.max(0, last - first)) rows.pop().remove();
    if (shown.length) nothing.remove(); else if (!nothing.isConnected) space.append(nothing);
  }
  box.addEventListener("scroll", () => { scrolled = box.scrollTop; sight(); });
  box.addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[e.key];
    if (step) { at = Math.max(0, Math.min(shown.length - 1, at + step)); box.scrollTop = Math.max(0, Math.min(box.scrollTop, at * height), (at + 2) * height - box.clientHeight + 32); sight(); e.preventDefault(); }
    // What has the focus after this is not pressed by the same key.
    if (e.key === "Enter" && e.target === box && shown[at]) { e.preventDefault(); onPick(columns[0].id(shown[at])); }
  });
  return { box, search, draw };
}

// Cells that are more than text: made once, then changed where they differ.
const part = (cell, make) => cell.parts ??= (() => { const parts = make(); cell.replaceChildren(...parts); return parts; })();
function fillRate(cell, value, most) {
  const [bar, text] = part(cell, () => [el("span", { class: "bar" }, el("i")), el("span")]);
  const full = Math.round(Math.min(1, value / Math.max(1, most)) * 64);
  if (bar.full !== full) bar.firstChild.style.transform = `scaleX(${(bar.full = full) / 64})`;
  say(text, amount(value, "MB/s"));
}
function fillNamed(cell, id) {
  const [mark, text] = part(cell, () => [swatch(id), el("span")]);
  if (mark.of !== colour(id)) mark.style.background = mark.of = colour(id);
  say(text, id);
  hint(cell, id);
}
function fillClassed(cell, word, kind) {
  const [text] = part(cell, () => [el("span")]);
  if (text.className !== kind) text.className = kind;
  say(text, word);
}

// A limit in words.
export function limitWords(l) {
  const { bandwidth, iops, metadata } = l.most ?? {}, words = [];
  if (bandwidth !== undefined) words.push(`at most ${amount(bandwidth / 1e6, "MB/s")}`);
  if (iops !== undefined) words.push(`at most ${amount(iops)} reads and writes a second`);
  if (metadata !== undefined) words.push(`at most ${amount(metadata)} metadata operations a second`);
  if (l.at_least !== undefined) words.push(`at least ${amount(l.at_least / 1e6, "MB/s")}`);
  if (l.until_unix_ms !== undefined) words.push(`until ${new Date(l.until_unix_ms).toLocaleString([], { hour12: false })}`);
  const whose = l.subject.user !== undefined ? `, with all jobs of user ${l.subject.user}` : l.subject.app !== undefined ? `, with all jobs of application ${l.subject.app}` : "";
  return words.join(", ") + whose;
}
// The strictest of each kind, as short as it goes.
function limitShort(j) {
  const all = limitsOf(j);
  if (!all.length) return "";
  const least = (of) => Math.min(...all.map((l) => of(l) ?? Infinity));
  const [bandwidth, iops, metadata] = ["bandwidth", "iops", "metadata"].map((k) => least((l) => l.most?.[k]));
  if (bandwidth < Infinity) return `≤ ${amount(bandwidth / 1e6, "MB/s")}`;
  if (iops < Infinity) return `≤ ${amount(iops)} ops/s`;
  if (metadata < Infinity) return `≤ ${amount(metadata)} meta/s`;
  return `≥ ${amount(Math.max(...all.map((l) => l.at_least ?? 0)) / 1e6, "MB/s")}`;
}
const moved = (j) => (j.bytes_at_least ? "≥ " : "") + amount(j.bytes, "B");
const UNCOUNTED = "At least: what I/O nodes did while no arbiter heard them is counted by nobody.";

const jobColumns = (most) => [
  { title: "job", width: "minmax(120px, 1.3fr)", id: (j) => j.id, value: (j) => j.id, fill: (c, j) => fillNamed(c, j.id) },
  { title: "bandwidth", width: "150px", value: (j) => j.bandwidth_mbs, prepare() { this.most = most(); }, fill(c, j) { fillRate(c, j.bandwidth_mbs, this.most); }, sort: true, down: true },
  { title: "ops/s", width: "64px", num: true, value: (j) => j.operations ?? 0, cell: (j) => amount(Math.round(j.operations ?? 0)), down: true },
  { title: "p50", width: "68px", num: true, value: (j) => j.latency_p50 ?? 0, cell: (j) => span(j.latency_p50), down: true },
  { title: "p99", width: "68px", num: true, value: (j) => j.latency_p99 ?? 0, cell: (j) => span(j.latency_p99), down: true },
  { title: "I/O nodes", width: "90px", value: (j) => j.nodes.length, cell: (j) => (j.nodes.length ? j.nodes.slice(0, 6).join(" ") + (j.nodes.length > 6 ? " …" : "") : "none"), down: true },
  { title: "limit", width: "84px", num: true, value: limitShort, hint: (j) => limitsOf(j).map(limitWords).join("; ") },
  { title: "application", width: "minmax(90px, .8fr)", value: (j) => j.app },
  { title: "user", width: "70px", value: (j) => j.user },
  { title: "predicted", width: "80px", num: true, value: (j) => j.predicted_mbs ?? -1, cell: (j) => amount(j.predicted_mbs, "MB/s"), down: true },
  { title: "moved", width: "76px", num: true, value: (j) => j.bytes, cell: moved, hint: (j) => (j.bytes_at_least ? UNCOUNTED : ""), down: true },
  { title: "running", width: "60px", num: true, value: (j) => -j.since, cell: (j) => ago(now() - j.since) },
  { title: "pattern", width: "minmax(170px, 1.2fr)", value: (j) => j.pattern ?? "" },
];
const nodeColumns = (most) => [
  { title: "node", width: "56px", id: (n) => String(n.id), value: (n) => n.id, sort: true },
  { title: "host", width: "minmax(90px, .8fr)", value: (n) => n.host },
  { title: "state", width: "96px", value: (n) => n.state, fill: (c, n) => fillClassed(c, n.state, `pill ${stateClass(n.state)}`) },
  { title: "health", width: "90px", value: (n) => n.health?.state ?? "", fill: (c, n) => fillClassed(c, n.health?.state ?? "–", n.health ? stateClass(n.health.state) : "") },
  { title: "bandwidth", width: "160px", value: (n) => n.bandwidth_mbs, prepare() { this.most = most(); }, fill(c, n) { fillRate(c, n.bandwidth_mbs, this.most); }, down: true },
  { title: "waiting", width: "66px", num: true, value: (n) => n.waiting, down: true },
  { title: "p50", width: "72px", num: true, value: (n) => n.latency_p50, cell: (n) => span(n.latency_p50), down: true },
  { title: "p99", width: "72px", num: true, value: (n) => n.latency_p99, cell: (n) => span(n.latency_p99), down: true },
  { title: "errors", width: "56px", num: true, value: (n) => n.errors, down: true },
  { title: "connections", width: "90px", num: true, value: (n) => n.connections, down: true },
  { title: "jobs", width: "minmax(110px, 1fr)", value: (n) => n.jobs.join(" ") },
];
const most = (map) => () => { let m = 1; for (const i of map.values()) m = Math.max(m, i.bandwidth_mbs); return m; };

function decision(d) {
  const moved = d.jobs.filter((j) => String(j.nodes) !== String(j.before));
  return el("li", {}, el("time", { datetime: new Date(d.unix_ms).toISOString() }, new Date(d.unix_ms).toLocaleTimeString([], { hour12: false })),
    el("b", {}, prose(d.cause)), el("span", { class: "soft" }, ` · ${d.policy}, ${d.io_nodes} I/O nodes${d.total_mbs > 0 ? `, ${amount(d.total_mbs, "MB/s")} predicted` : ""}, ${d.took_us} µs`),
    el("ul", {}, ...(moved.length ? [] : [el("li", {}, "nobody moves")]), ...moved.slice(0, 12).map((j) => el("li", {}, swatch(j.id), named(j.id), `: ${j.before.join(" ") || "–"} → ${j.nodes.join(" ") || "–"}. `, prose(j.why)))));
}

function feed(limit) {
  const ul = el("ul", { class: "feed" });
  let newest = -1;
  return { ul, draw() {
    const shown = state.decisions.slice(0, limit);
    if ((shown[0]?.id ?? 0) === newest) return;
    newest = shown[0]?.id ?? 0;
    ul.replaceChildren(...shown.map(decision), ...(shown.length ? [] : [el("li", { class: "empty" }, "nothing was decided yet")]));
  } };
}

export const views = {
  overview(main, pick) {
    const tile = (word) => { const b = el("b", {}, "–"); return [b, el("div", { class: "tile" }, b, el("span", {}, word))]; };
    const [bw, t1] = tile("through the I/O nodes"), [jobs, t2] = tile("jobs"), [nodes, t3] = tile("I/O nodes in use / known"), [wait, t4] = tile("requests waiting"), [p99, t5] = tile("worst p99 latency"), [policy, t6] = tile("policy");
    const canvas = el("canvas", { class: "gantt", role: "img", "aria-label": "Which job holds which I/O node over the last five minutes" });
    const box = el("div", { class: "body scroll", style: { maxHeight: "46vh", padding: "0 12px" } });
    const chart = el("div");
    const news = feed(6);
    main.append(el("div", { class: "tiles" }, t1, t2, t3, t4, t5, t6),
      panel("Who holds which I/O node", "up to five minutes back; click for details", box),
      panel("Bandwidth", "the six busiest jobs, and all together", el("div", { class: "body" }, chart)),
      panel("Decisions", "the latest", news.ul));
    const drawGantt = gantt(box, canvas, pick);
    // Who is busiest changes all the time: a line stays for a while, so that it can be looked at.
    let top = [], chosen = 0;
    const drawLines = lines(chart, "MB/s", () => {
      if (now() - chosen > 5 || top.length < Math.min(6, state.jobs.size) || top.some((id) => !state.jobs.has(id))) {
        const busy = (id) => state.jobSeries.get(id)?.bandwidth.mean(20) ?? state.jobs.get(id).bandwidth_mbs;
        const ranked = [...state.jobs.keys()].map((id) => [busy(id), id]).sort((a, b) => b[0] - a[0]).slice(0, 6).map(([, id]) => id).sort(order);
        top = ranked; chosen = now();
      }
      return [["all", css("--soft"), state.total.padded()], ...top.map((id) => [id, colour(id), state.jobSeries.get(id)?.bandwidth.padded() ?? []])];
    }, 200);
    return { draw() {
      let waiting = 0, worst = 0, busy = 0;
      for (const n of state.nodes.values()) { waiting += n.waiting; worst = Math.max(worst, n.latency_p99); busy += n.state === "admitted"; }
      bw.textContent = amount(state.total.last(), "MB/s"); jobs.textContent = state.jobs.size; nodes.textContent = `${busy} / ${state.nodes.size}`;
      wait.textContent = amount(waiting); p99.textContent = span(worst); policy.textContent = state.about?.policy ?? "–";
      drawGantt(); drawLines(); news.draw();
    }, end: () => drawLines.end() };
  },
  jobs(main, pick) {
    const l = list(jobColumns(most(state.jobs)), () => [...state.jobs.values()], (id) => pick("job", id), "no job runs");
    main.append(panel("Jobs", null, l.box)); main.querySelector("h2").append(el("span", { class: "grow" }), l.search);
    return { draw: l.draw };
  },
  nodes(main, pick) {
    const l = list(nodeColumns(most(state.nodes)), () => [...state.nodes.values()], (id) => pick("node", id), "no I/O node has come yet");
    const refused = el("ul", { class: "feed" });
    main.append(panel("I/O nodes", null, l.box, refused)); main.querySelector("h2").append(el("span", { class: "grow" }), l.search);
    return { draw() {
      l.draw();
      const words = (state.about?.refused ?? []).map((r) => `refused: ${r.node === undefined ? "somebody" : `I/O node ${r.node}`}${r.host ? ` on ${r.host}` : ""}: ${r.reason}`);
      if (refused.textContent !== words.join("")) refused.replaceChildren(...words.map((w) => el("li", { class: "bad" }, w)));
    } };
  },
  decisions(main) {
    const news = feed(200);
    main.append(panel("Decisions", "who got which I/O nodes, and why", news.ul));
    return news;
  },
  council(main) {
    const body = el("div", { class: "body" }), ul = el("ul", { class: "feed" });
    main.append(panel("Council", "which scheduler parameters all I/O nodes use, and what it learned", body), panel("Its rounds", "the latest first", ul));
    let shown = null;
    const scheduler = (s) => typeof s === "string" ? s : JSON.stringify(s).replace(/[{}"]/g, "").replace(/,/g, ", ");
    return { draw() {
      const c = state.council;
      if (!c || shown === c) return;
      shown = c;
      body.replaceChildren(el("dl", {}, ...[["mode", c.mode], ["in force", (c.in_force ?? []).map(scheduler).join(", ") || "–"], [c.mode === "on" ? "wanted" : "if it were on", scheduler(c.standing)], ["rounds", c.round], ["reported since", `${c.reported} I/O nodes`], ["detector", c.model]].flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, String(v))])));
      ul.replaceChildren(...[...c.decisions].reverse().slice(0, 100).map((d) => el("li", {}, el("time", {}, new Date(d.unix_ms).toLocaleTimeString([], { hour12: false })), el("b", {}, scheduler(d.scheduler)), d.changed ? el("span", { class: "warn" }, " changed") : "", d.explores ? el("span", { class: "soft" }, " (trial)") : "", el("div", { class: "soft" }, d.why))), ...(c.decisions.length ? [] : [el("li", { class: "empty" }, "no round yet")]));
    } };
  },
  history(main, pick) {
    let found = [];
    const l = list([
      { title: "job", width: "minmax(150px, 1fr)", id: (j) => j, value: (j) => j.job, fill: (c, j) => fillNamed(c, j.job) },
      { title: "began", width: "170px", value: (j) => j.began_unix_ms, cell: (j) => new Date(j.began_unix_ms).toLocaleString([], { hour12: false }), down: true },
      { title: "last seen", width: "170px", value: (j) => j.last, cell: (j) => new Date(j.last * 1000).toLocaleString([], { hour12: false }), sort: true, down: true },
      { title: "read", width: "90px", num: true, value: (j) => j.bytes_read, cell: (j) => amount(j.bytes_read, "B"), down: true },
      { title: "written", width: "90px", num: true, value: (j) => j.bytes_written, cell: (j) => amount(j.bytes_written, "B"), down: true },
    ], () => found, (j) => pick("past", j), "the database knows no job");
    main.append(panel("History", "jobs that did I/O, from the database; those of one name by when they began", l.box)); main.querySelector("h2").append(el("span", { class: "grow" }), l.search);
    look("/v1/history/jobs").then((jobs) => { found = jobs; l.draw(); }).catch(() => {});
    return { draw: l.draw };
  },
};

const facts = (rows) => el("dl", {}, ...rows.filter(([, v]) => v !== null && v !== undefined && v !== "").flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v instanceof Node ? v : String(v))]));

// One job, running or ended; of the past: which one of its name.
export function jobDetail(box, id, act, gone = null) {
  const head = el("div"), live = el("div"), chart = el("div"), curve = el("div"), past = el("div");
  box.append(el("h2", {}, swatch(id), id), head, live, chart, curve, past);
  const [bandwidth, ops, latency] = ["Bandwidth", "Operations a second", "Latency of reads and writes"].map((title) => { const at = el("div"); chart.append(el("h3", {}, title), at); return at; });
  const series = (name) => state.jobSeries.get(id)?.[name].padded() ?? [];
  const drawn = [
    lines(bandwidth, "MB/s", () => [["bandwidth", colour(id), series("bandwidth")]], 140),
    lines(ops, "", () => [["data and metadata", colour(id), series("ops")]], 120),
    lines(latency, "ms", () => [["median", "#2f7ebc", series("p50")], ["99 % within", "#d9822b", series("p99")]], 130),
  ];
  let rows = [];
  // The job of this name that runs, if it is this one; the arbiter tells since when to the second.
  const running = () => { const j = state.jobs.get(id), off = j && gone ? gone.began_unix_ms - j.since * 1000 : 0; return off > -500 && off < 1500 ? j : undefined; };
  // Of long ago only minutes are known, or hours.
  const first = Math.floor(gone?.first ?? running()?.since ?? 0), age = first ? now() - first : 0;
  const step = age < 5.5 * 3600 ? 1 : age < 13.5 * 86400 ? 60 : 3600, last = gone && !running() ? `&to=${gone.last}` : "";
  look(`/v1/history?limit=4000&job=${encodeURIComponent(id)}&step=${step}&from=${first - (first % step)}${last}`).then((found) => { rows = found; history(); }).catch(() => {});
  function history() {
    if (!rows.length) return;
    const by = new Map();
    for (const r of rows) { const s = by.get(r.time) ?? [0, 0, 0, 0]; s[0] += r.bytes_read / 1e6 / r.seconds; s[1] += r.bytes_written / 1e6 / r.seconds; s[2] += (r.reads + r.writes) / r.seconds; s[3] += r.metadata / r.seconds; by.set(r.time, s); }
    const times = [...by.keys()].sort((a, b) => a - b), read = times.map((t) => by.get(t)[0]), written = times.map((t) => by.get(t)[1]);
    const ops = times.map((t) => by.get(t)[2]), meta = times.map((t) => by.get(t)[3]);
    const axis = { stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const long = times.at(-1) - times[0] > 86400;
    const clock = (t) => new Date(t * 1000).toLocaleString([], { hour12: false, ...(long ? { month: "short", day: "numeric" } : { second: "2-digit" }), hour: "2-digit", minute: "2-digit" });
    // One second alone has some around it.
    const scales = { x: { range: (_, a, b) => (b - a < 10 ? [a - 5, b + 5] : [a, b]) } };
    const one = (title, unit, series) => { const at = el("div"); past.append(el("h3", {}, title), at); new uPlot({ scales, width: Math.max(200, past.clientWidth), height: 140, axes: [{ ...axis, space: 64, values: (_, v) => v.map(clock) }, { ...axis, size: 62, values: (_, v) => v.map((n) => amount(n, unit)) }], series: [{}, ...series.map(([label, stroke]) => ({ label, stroke, width: 1.5, points: { show: times.length < 3 } }))] }, [times, ...series.map((s) => s[2])], at); };
    one("Bytes a second, from the database", "MB/s", [["read", "#2f7ebc", read], ["written", "#d9822b", written]]);
    one("Requests a second", "", [["data", "#2f7ebc", ops], ["metadata", "#8a56c2", meta]]);
  }
  const date = (ms) => new Date(ms).toLocaleString([], { hour12: false });
  return { draw() {
    const j = running();
    if (j) {
      head.replaceChildren(facts([["application", j.app && named(j.app)], ["user", j.user], ["compute nodes", j.compute_nodes], ["processes", j.processes], ["weight", j.weight], ["running", ago(now() - j.since)], ["bandwidth", amount(j.bandwidth_mbs, "MB/s")], ["operations", `${amount(Math.round(j.operations ?? 0))} a second`], ["latency", `p50 ${span(j.latency_p50)}, p99 ${span(j.latency_p99)}`], ["predicted", j.predicted_mbs === null ? null : amount(j.predicted_mbs, "MB/s")], ["moved", el("span", { title: j.bytes_at_least ? UNCOUNTED : undefined }, moved(j))], ...limitsOf(j).map((l) => ["limited", limitWords(l)]), ["pattern", j.pattern], ["curve from", j.curve], ["I/O nodes", j.nodes.join(" ") || "none"], ["pinned to", j.pinned?.join(" ")], ["why", j.reason]]));
      if (!live.firstChild) live.append(el("div", { class: "actions" }, el("button", { type: "button", onclick: () => act.pin(id) }, "Pin to I/O nodes…"), el("button", { type: "button", onclick: () => act.limit(id) }, "Limit…"), el("button", { type: "button", class: "danger", onclick: () => act.end(id) }, "End job…")));
      chart.hidden = false;
      drawn.forEach((draw) => draw());
    } else { head.replaceChildren(el("p", { class: "soft" }, `This job has ended.${state.jobs.has(id) ? " Another one of its name runs." : ""}`), ...(gone ? [facts([["began", date(gone.began_unix_ms)], ["last seen at work", date(gone.last * 1000)], ["read", amount(gone.bytes_read, "B")], ["written", amount(gone.bytes_written, "B")]])] : [])); live.replaceChildren(); chart.hidden = true; }
    const then = (x) => !gone || j || (x.unix_ms >= gone.began_unix_ms && x.unix_ms <= gone.last * 1000 + 5000);
    const d = state.decisions.find((x) => then(x) && x.jobs.some((y) => y.id === id))?.jobs.find((y) => y.id === id);
    const mine = d && [...d.alternatives, ...(d.predicted_mbs === null ? [] : [[d.nodes.length, d.predicted_mbs]])].sort((a, b) => a[0] - b[0]).filter((a, i, all) => !i || a[0] !== all[i - 1][0]);
    if (mine?.length > 1) {
      const top = Math.max(...mine.map((a) => a[1]), 1);
      curve.replaceChildren(el("h3", {}, "What it would get with another count of I/O nodes"), el("div", { class: "curve" }, ...mine.map(([n, mbs]) => { const i = el("i"); i.style.height = `${(70 * mbs) / top}%`; return el("div", { class: n === d.nodes.length ? "now" : "" }, amount(mbs, "MB/s"), i, String(n)); })), el("p", { class: "soft" }, d.gain_mbs === null ? "" : `${amount(d.gain_mbs, "MB/s")} above what STATIC (${d.static_io_nodes}) would give.`));
    } else curve.replaceChildren();
  }, end: () => drawn.forEach((draw) => draw.end()) };
}

export function nodeDetail(box, id, act, pick) {
  const head = el("div"), buttons = el("div", { class: "actions" }), chart = el("div");
  box.append(el("h2", {}, `I/O node ${id}`), head, buttons, chart);
  buttons.append(el("button", { type: "button", class: "danger", onclick: () => act.drain(id) }, "Drain…"));
  const draw = lines(chart, "MB/s", () => [["bandwidth", "#2f7ebc", state.nodeSeries.get(String(id))?.padded() ?? []]]);
  return { draw() {
    const n = state.nodes.get(String(id));
    if (!n) { head.replaceChildren(el("p", { class: "soft" }, "This I/O node is gone.")); buttons.hidden = true; return; }
    const jobs = el("span", {}, ...n.jobs.flatMap((j) => [el("a", { href: "#", onclick: (e) => { e.preventDefault(); pick("job", j); } }, swatch(j), named(j)), " "]));
    head.replaceChildren(facts([["host", n.host], ["state", pill(n.state)], ["reason", n.health?.reason === n.reason ? null : n.reason], ["health", n.health && `${n.health.state}: ${n.health.reason}`], ["bandwidth", amount(n.bandwidth_mbs, "MB/s")], ["waiting", n.waiting], ["latency", `p50 ${span(n.latency_p50)}, p99 ${span(n.latency_p99)}`], ["errors", n.errors], ["connections", n.connections], ["scheduler", n.scheduler], ["addresses", n.addresses.join(" ")], ["heard of", n.heard_ms ? `${ago(n.heard_ms / 1000)} ago` : "just now"], ["jobs", n.jobs.length ? jobs : "none"]]));
    draw();
  }, end: () => draw.end() };
}
