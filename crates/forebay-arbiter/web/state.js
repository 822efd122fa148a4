// What the page knows: the arbiter's state as it is pushed, and the last minutes of it.
// Everything that grows with time is bounded.

export const WINDOW = 300;            // seconds that charts look back
const STEP = 0.5;                     // seconds between two samples
const SAMPLES = WINDOW / STEP;
const DECISIONS = 200;

// A ring of samples; the clock is shared by all of them.
class Series {
  constructor() { this.values = new Float32Array(SAMPLES); this.used = 0; }
  push(value) {
    if (this.used === SAMPLES) this.values.copyWithin(0, 1);
    else this.used++;
    this.values[this.used - 1] = value;
  }
  padded() {                          // as long as the clock's, null where it did not exist yet or nothing was heard (NaN)
    const out = new Array(SAMPLES).fill(null);
    for (let i = 0; i < this.used; i++) if (!Number.isNaN(this.values[i])) out[SAMPLES - this.used + i] = this.values[i];
    return out;
  }
  mean(count) {
    let sum = 0, n = 0;
    for (let i = Math.max(0, this.used - count); i < this.used; i++) if (!Number.isNaN(this.values[i])) { sum += this.values[i]; n++; }
    return n ? sum / n : 0;
  }
  last() {                            // that is known
    for (let i = this.used - 1; i >= 0; i--) if (!Number.isNaN(this.values[i])) return this.values[i];
    return 0;
  }
}

export const state = {
  connected: false, lost: false, refused: null, about: null, council: null,
  heard: performance.now(),           // when the arbiter last gave a sign of life
  jobs: new Map(), nodes: new Map(), limits: new Map(), decisions: [],
  // job -> its series; node -> its bandwidth
  jobSeries: new Map(), nodeSeries: new Map(), total: new Series(),
  held: new Map(),                    // node -> [{job, from, to}], newest last
};

const listeners = new Set();
export const onChange = (f) => { listeners.add(f); return () => listeners.delete(f); };
const changed = (what) => { for (const f of listeners) f(what); };

export const now = () => Date.now() / 1000;

// How far charts look back: as long as anything is known, within bounds.
let oldest = Infinity;
export function lookback() {
  const first = Math.min(oldest, now() - state.total.used * STEP);
  return Math.min(WINDOW, Math.max(30, now() - first));
}

// The times of the samples, for charts.
export const clock = () => {
  const end = Math.round(now() / STEP) * STEP, count = Math.min(SAMPLES, Math.max(30 / STEP, state.total.used));
  return Array.from({ length: count }, (_, i) => end - (count - 1 - i) * STEP);
};

// Jobs that are seen at the same time have colours that are far apart; a job keeps its own on every view.
const colours = new Map(), taken = new Set();
export function colour(id) {
  let word = colours.get(id);
  if (word === undefined) {
    let n = 0;
    while (taken.has(n)) n++;
    taken.add(n);
    word = { n, css: paint(n) };
    colours.set(id, word);
  }
  return word.css;
}
function paint(n) {
  return `hsl(${(205 + n * 137.508) % 360 | 0} ${[58, 46, 62][n % 3]}% ${[46, 54, 40][(n >> 1) % 3]}%)`;
}
function freeColours() {
  if (colours.size < 64 || colours.size < 2 * state.jobs.size) return;
  const used = new Set(state.jobs.keys());
  for (const spans of state.held.values()) for (const s of spans) used.add(s.job);
  for (const [id, { n }] of colours) if (!used.has(id)) { colours.delete(id); taken.delete(n); }
}

// Whether something came or went, or a job holds other nodes than before.
function merge(map, changes) {
  let moved = false;
  for (const [id, value] of Object.entries(changes)) {
    const old = map.get(id);
    moved ||= value === null || !old || (value.epoch !== old.epoch || String(value.nodes) !== String(old.nodes));
    value === null ? map.delete(id) : map.set(id, value);
  }
  return moved;
}

// What ended before the charts begin is forgotten.
function prune() {
  const t = now();
  oldest = Infinity;
  for (const [node, spans] of state.held) {
    while (spans.length && spans[0].to !== null && spans[0].to < t - WINDOW) spans.shift();
    if (!spans.length && !state.nodes.has(node)) state.held.delete(node);
    if (spans.length) oldest = Math.min(oldest, spans[0].from);
  }
}

// Notes who holds which node from now on.
function noteHolders() {
  const t = now();
  const holders = new Map();
  for (const job of state.jobs.values()) {
    for (const n of job.nodes) {
      const key = String(n);
      if (!holders.has(key)) holders.set(key, new Set());
      holders.get(key).add(job.id);
    }
  }
  for (const id of state.nodes.keys()) if (!state.held.has(id)) state.held.set(id, []);
  for (const [node, spans] of state.held) {
    const jobs = holders.get(node) ?? new Set();
    for (const span of spans) if (span.to === null && !jobs.has(span.job)) span.to = t;
    const open = new Set(spans.filter((s) => s.to === null).map((s) => s.job));
    for (const job of jobs) if (!open.has(job)) spans.push({ job, from: t, to: null });
  }
  prune();
}

// What the decisions tell of the time before the page was opened.
function recall() {
  const start = now() - WINDOW;
  const open = new Map();
  for (const d of [...state.decisions].reverse()) {
    const t = Math.max(start, d.unix_ms / 1000);
    for (const j of d.jobs) {
      const before = new Set(j.before.map(String)), after = new Set(j.nodes.map(String));
      for (const n of before) {
        const key = `${n} ${j.id}`;
        if (!after.has(n)) { spanOf(n).push({ job: j.id, from: open.get(key) ?? start, to: t }); open.delete(key); }
      }
      for (const n of after) if (!before.has(n)) open.set(`${n} ${j.id}`, t);
    }
  }
  for (const job of state.jobs.values())
    for (const n of job.nodes) spanOf(String(n)).push({ job: job.id, from: open.get(`${n} ${job.id}`) ?? Math.max(start, job.since), to: null });
  for (const spans of state.held.values()) spans.sort((a, b) => a.from - b.from);
}
function spanOf(node) {
  if (!state.held.has(node)) state.held.set(node, []);
  return state.held.get(node);
}

export function apply(event, first = false) {
  if (event.about) state.about = event.about;
  if (event.council !== undefined) state.council = event.council;
  let moved = first;
  if (event.jobs) moved = merge(state.jobs, event.jobs) || moved;
  if (event.nodes) moved = merge(state.nodes, event.nodes) || moved;
  if (event.limits) merge(state.limits, event.limits);
  if (event.decisions) {
    state.decisions.push(...event.decisions);
    state.decisions.sort((a, b) => b.id - a.id);
    state.decisions = state.decisions.filter((d, i, all) => !i || d.id !== all[i - 1].id).slice(0, DECISIONS);
  }
  if (first && !state.held.size) recall();
  if (moved) noteHolders();
  changed("state");
}

// The limits that hold for a job: its own, then those it shares with others.
export function limitsOf(job) {
  if (!state.limits.size) return [];
  return [`job=${job.id}`, `user=${job.user}`, `app=${job.app}`].map((id) => state.limits.get(id)).filter(Boolean);
}

// One sample of everything.
let samples = 0;
export function sample() {
  const old = !!silence();            // charts show nothing where nothing was heard
  const feed = (map, series, make, push) => {
    for (const [id, item] of map) {
      let own = series.get(id);
      if (!own) series.set(id, own = make());
      push(own, item);
    }
    for (const id of series.keys()) if (!map.has(id)) series.delete(id);
  };
  feed(state.jobs, state.jobSeries, () => ({ bandwidth: new Series(), ops: new Series(), p50: new Series(), p99: new Series() }), (s, j) => {
    for (const [name, value] of [["bandwidth", j.bandwidth_mbs], ["ops", j.operations ?? 0], ["p50", (j.latency_p50 ?? 0) / 1e6], ["p99", (j.latency_p99 ?? 0) / 1e6]]) s[name].push(old ? NaN : value);
  });
  feed(state.nodes, state.nodeSeries, () => new Series(), (s, n) => s.push(old ? NaN : n.bandwidth_mbs));
  let total = 0;
  for (const n of state.nodes.values()) total += n.bandwidth_mbs;
  state.total.push(old ? NaN : total);
  if (++samples % 20 === 0) prune();
  freeColours();
  changed("tick");
}

// A connection tells everything anew at its start: what is not in its first event is gone.
function forget() {
  state.jobs.clear(); state.nodes.clear(); state.limits.clear(); state.decisions = [];
}

// The arbiter's events, for as long as they come; again after a while when they end. Not an EventSource: where
// the arbiter tells users apart, looking takes its secret, and it cannot send one.
// The secret stays in this tab and goes with it.
export const secret = () => sessionStorage.getItem("secret");
const proof = () => (secret() ? { Authorization: `Bearer ${secret()}` } : {});
export async function look(path) {
  const answer = await fetch(path, { headers: proof() });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// The arbiter gives a sign of life every second, or so. One that gives none stands still, or the way to it does: what is
// known is old. After a while another connection is tried.
const QUIET = 4, SILENT = 15000;
export function silence() {           // for how many seconds nothing was heard; 0 where that is nothing to speak of
  const seconds = Math.floor((performance.now() - state.heard) / 1000);
  return seconds < QUIET ? 0 : seconds;
}

let turn = 0, link = null, ticking = null;
async function listen(ended) {
  let alive = setTimeout(() => ended.abort(), SILENT);
  const answer = await fetch("/v1/live", { headers: proof(), signal: ended.signal, cache: "no-store" });
  if (!answer.ok) {
    const why = await answer.json().catch(() => ({}));
    state.refused = { status: answer.status, why: why.error ?? `the arbiter refuses (${answer.status})` };
    return clearTimeout(alive);
  }
  state.connected = true; state.lost = false; state.refused = null; state.heard = performance.now(); changed("link");
  let first = true, rest = "";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    clearTimeout(alive);
    if (done) return;
    state.heard = performance.now();
    alive = setTimeout(() => ended.abort(), SILENT);
    rest += value;
    // What is sent is long, and has line ends only at its end.
    if (!value.includes("\n")) continue;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5)).join("\n");
      if (!data) continue;
      if (first) forget();
      apply(JSON.parse(data), first);
      first = false;
    }
  }
}

export async function connect() {
  const me = ++turn;
  link?.abort();
  // What was refused to somebody else is not refused to whoever asks now.
  state.refused = null;
  if (!ticking) ticking = setInterval(sample, STEP * 1000);
  for (let nap = 500; ;) {
    const began = Date.now();
    link = new AbortController();
    try { await listen(link); } catch { /* it is gone, silent, or somebody else's turn */ }
    if (me !== turn) return;
    state.connected = false;
    state.lost = !link.signal.aborted;
    changed("link");
    if (state.refused?.status === 401 || state.refused?.status === 403) return;
    nap = Date.now() - began > 5000 ? 500 : Math.min(nap * 2, 5000);
    await new Promise((done) => setTimeout(done, nap));
    if (me !== turn) return;
  }
}

// Nobody may look without a secret: nothing is asked for until there is one.
export function refuse(why) {
  turn++;
  link?.abort();
  state.connected = false;
  state.refused = { status: 401, why };
  forget();
  state.held.clear(); state.about = null;
  changed("link");
}
