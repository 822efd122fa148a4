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
  padded() {                          // as long as the clock's, null where it did not exist yet
    const out = new Array(SAMPLES).fill(null);
    for (let i = 0; i < this.used; i++) out[SAMPLES - this.used + i] = this.values[i];
    return out;
  }
  last() { return this.used ? this.values[this.used - 1] : 0; }
}

export const state = {
  connected: false, about: null, council: null,
  jobs: new Map(), nodes: new Map(), decisions: [],
  jobSeries: new Map(), nodeSeries: new Map(), total: new Series(),
  held: new Map(),                    // node -> [{job, from, to}], newest last
};

const listeners = new Set();
export const onChange = (f) => { listeners.add(f); return () => listeners.delete(f); };
const changed = (what) => { for (const f of listeners) f(what); };

export const now = () => Date.now() / 1000;

// How far charts look back: as long as anything is known, within bounds.
export function lookback() {
  let first = now() - state.total.used * STEP;
  for (const spans of state.held.values()) if (spans.length) first = Math.min(first, spans[0].from);
  return Math.min(WINDOW, Math.max(30, now() - first));
}

// The times of the samples, for charts.
export const clock = () => {
  const end = Math.round(now() / STEP) * STEP, count = Math.min(SAMPLES, Math.ceil(lookback() / STEP));
  return Array.from({ length: count }, (_, i) => end - (count - 1 - i) * STEP);
};

// Jobs that are seen at the same time have colours that are far apart; a job keeps its own on every view.
const colours = new Map();
export function colour(id) {
  if (!colours.has(id)) {
    const taken = new Set(colours.values());
    let n = 0;
    while (taken.has(n)) n++;
    colours.set(id, n);
  }
  const n = colours.get(id);
  return `hsl(${(205 + n * 137.508) % 360 | 0} ${[58, 46, 62][n % 3]}% ${[46, 54, 40][(n >> 1) % 3]}%)`;
}
function freeColours() {
  if (colours.size < 64) return;
  const used = new Set(state.jobs.keys());
  for (const spans of state.held.values()) for (const s of spans) used.add(s.job);
  for (const id of colours.keys()) if (!used.has(id)) colours.delete(id);
}

function merge(map, changes) {
  for (const [id, value] of Object.entries(changes)) value === null ? map.delete(id) : map.set(id, value);
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
    while (spans.length && spans[0].to !== null && spans[0].to < t - WINDOW) spans.shift();
    if (!spans.length && !state.nodes.has(node)) state.held.delete(node);
  }
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
  if (event.jobs) merge(state.jobs, event.jobs);
  if (event.nodes) merge(state.nodes, event.nodes);
  if (event.decisions) {
    state.decisions.push(...event.decisions);
    state.decisions.sort((a, b) => b.id - a.id);
    state.decisions = state.decisions.filter((d, i, all) => !i || d.id !== all[i - 1].id).slice(0, DECISIONS);
  }
  if (first && !state.held.size) recall();
  if (event.jobs || event.nodes) noteHolders();
  changed("state");
}

// One sample of everything.
export function sample() {
  const feed = (map, series, value) => {
    for (const [id, item] of map) {
      if (!series.has(id)) series.set(id, new Series());
      series.get(id).push(value(item));
    }
    for (const id of series.keys()) if (!map.has(id)) series.delete(id);
  };
  feed(state.jobs, state.jobSeries, (j) => j.bandwidth_mbs);
  feed(state.nodes, state.nodeSeries, (n) => n.bandwidth_mbs);
  let total = 0;
  for (const n of state.nodes.values()) total += n.bandwidth_mbs;
  state.total.push(total);
  noteHolders();
  freeColours();
  changed("tick");
}

// A connection tells everything anew at its start: what is not in its first event is gone.
function forget() {
  state.jobs.clear(); state.nodes.clear(); state.decisions = [];
}

export function connect() {
  const source = new EventSource("/v1/live");
  let first = true;
  source.onopen = () => { first = true; state.connected = true; changed("link"); };
  source.onmessage = (e) => {
    if (first) forget();
    apply(JSON.parse(e.data), first);
    first = false;
  };
  source.onerror = () => { state.connected = false; changed("link"); };
  setInterval(sample, STEP * 1000);
}
