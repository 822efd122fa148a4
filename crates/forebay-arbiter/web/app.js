// The page: which view is shown, keys, login, actions.

import { clip } from "./charts.js";
import { apply, connect, onChange, refuse, sample, secret, silence, state } from "./state.js";
import { jobDetail, nodeDetail, pill, views } from "./views.js";

const $ = (id) => document.getElementById(id);
let view = null, detail = null, queued = false, origin = null;

// However much happens, the page is drawn at most once a frame, and not while nobody sees it.
function redraw() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => {
    queued = false;
    view?.draw();
    detail?.draw();
    const about = state.about;
    const silent = state.refused || state.lost ? 0 : silence();
    const word = state.refused ? "no access" : silent ? `no answer for ${silent} s` : !state.connected ? (about ? "connection lost" : "connecting") : about?.state ?? "connecting";
    const why = state.refused ? state.refused.why : silent ? "The arbiter does not answer: what is shown is old." : state.connected && about?.state === "standby" ? `This arbiter stands by. ${about.why ?? ""}` : "";
    if ($("notice").textContent !== why) { $("notice").textContent = why; $("notice").hidden = !why; $("main").hidden = !!state.refused; }
    document.documentElement.toggleAttribute("data-old", !!about && (!!silent || !state.connected));
    if ($("state").textContent !== word) { const p = pill(word); p.id = "state"; p.setAttribute("role", "status"); p.setAttribute("aria-live", silent ? "off" : "polite"); if (about?.why) p.title = about.why; $("state").replaceWith(p); }
  });
}

function show() {
  const name = location.hash.replace(/^#\/?/, "") || "overview";
  const make = views[name] ?? views.overview;
  view?.end?.();
  $("main").replaceChildren();
  view = make($("main"), pick);
  for (const a of document.querySelectorAll("nav a")) a.dataset.view === (views[name] ? name : "overview") ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
  // On a phone not all of them are in sight.
  document.querySelector('nav a[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  redraw();
}

function pick(kind, id) {
  const from = document.activeElement?.closest(".list") ?? origin;
  close();
  origin = from;
  $("detail").hidden = false;
  const shut = document.createElement("button");
  shut.type = "button"; shut.textContent = "Close (Esc)"; shut.onclick = close;
  const bar = document.createElement("div");
  bar.className = "actions"; bar.append(shut);
  $("detail").append(bar);
  detail = kind === "job" ? jobDetail($("detail"), id, act) : kind === "past" ? jobDetail($("detail"), id.job, act, id) : nodeDetail($("detail"), id, act, pick);
  shut.focus();
  redraw();
}

function close() {
  detail?.end?.();
  detail = null;
  $("detail").hidden = true;
  $("detail").replaceChildren();
  // Whoever came by the keyboard goes on where they were.
  if (origin?.isConnected) origin.focus();
  origin = null;
}

function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $("toast").hidden = true; }, 6000);
}

// Asks for a text (`input`: its type; null: only yes or no; what stands in it is `value`), or for `fields`, a list of
// [label, type, value]: the answer has null for those that were left as they were.
function ask(title, text, input, fields = [], value = "") {
  // What was said before is not about this.
  $("toast").hidden = true;
  $("ask-title").textContent = clip(title, 40);
  $("ask-title").title = title;
  $("ask-text").textContent = text;
  $("ask-input").hidden = input === null;
  $("ask-input").type = input === "secret" ? "password" : "text";
  $("ask-input").value = value;
  $("ask-fields").replaceChildren(...fields.map(([label, type, value]) => {
    const row = document.createElement("label"), box = document.createElement("input");
    Object.assign(box, { type, value, autocomplete: "off", ...(type === "number" ? { min: 0, step: "any" } : type === "datetime-local" ? { step: 1 } : {}) });
    box.untouched = box.value;
    row.append(label, box);
    return row;
  }));
  $("ask").showModal();
  if (input === null && !fields.length) $("ask-ok").focus();
  if (value) $("ask-input").select();
  return new Promise((done) => {
    $("ask").onclose = () => {
      if ($("ask").returnValue !== "ok") return done(null);
      done(fields.length ? [...$("ask-fields").querySelectorAll("input")].map((i) => (i.value === i.untouched ? null : i.value.trim())) : $("ask-input").value.trim());
    };
    $("ask").returnValue = "cancel";
  });
}

// Where the arbiter tells users apart, whoever looks has to prove who he is, which a browser cannot.
const closed = document.documentElement.dataset.look === "secret";
const CLOSED = "This arbiter tells users apart (MUNGE), and a browser cannot prove who you are. Admins log in here with the arbiter's secret; everybody sees his own jobs with `forebay jobs` and `forebay top`.";

async function login() {
  if (secret()) { sessionStorage.removeItem("secret"); return loggedIn(); }
  const given = await ask("Log in", "The arbiter's secret (64 hexadecimal digits). It stays in this tab.", "secret");
  if (given && !/^[0-9a-f]{64}$/i.test(given)) toast("This is no secret: it has 64 hexadecimal digits.");
  else if (given && await proves(given)) { sessionStorage.setItem("secret", given); toast("You are logged in."); }
  loggedIn();
}
// Whether the arbiter takes a secret; null: it cannot be asked.
async function proves(given) {
  try {
    const answer = await fetch("/v1/admin", { headers: { Authorization: `Bearer ${given}` }, cache: "no-store" });
    if (answer.ok) return true;
    const why = (await answer.json().catch(() => ({}))).error ?? "";
    if (answer.status !== 401 && answer.status !== 403) return toast(why || `The arbiter cannot say (${answer.status}).`), null;
    toast(`You are not logged in: the arbiter refuses this secret. ${/missing or wrong/.test(why) ? "It is another one." : why}`);
    return false;
  } catch (e) { toast(`You are not logged in: the arbiter cannot be reached (${e.message}).`); return null; }
}
function loggedIn() {
  $("login").textContent = secret() ? "Log out" : "Log in";
  if (!closed) return;
  if (secret()) connect(); else { close(); refuse(CLOSED); }
}

async function change(method, path, body) {
  if (!secret()) await login();
  if (!secret()) return;
  try {
    const answer = await fetch(path, { method, headers: { Authorization: `Bearer ${secret()}` }, body: body && JSON.stringify(body) });
    if (answer.ok) return toast("Done.");
    if (answer.status === 401) { sessionStorage.removeItem("secret"); loggedIn(); }
    toast((await answer.json()).error ?? `refused (${answer.status})`);
  } catch (e) { toast(`The arbiter cannot be reached: ${e.message}`); }
}

// What a limit may say: its name, in words, the field, and what stands in it.
const number = (value, scale) => (value === undefined ? undefined : String(Number((value / scale).toPrecision(12))));
const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19);
const MOST = ["bandwidth", "iops", "metadata"];
const LIMIT = [
  ["bandwidth", "At most, MB/s", "number", (l) => number(l.most?.bandwidth, 1e6)],
  ["iops", "At most, reads and writes a second", "number", (l) => number(l.most?.iops, 1)],
  ["metadata", "At most, metadata operations a second", "number", (l) => number(l.most?.metadata, 1)],
  ["at_least", "At least, MB/s", "number", (l) => number(l.at_least, 1e6)],
  ["until_unix_ms", "Until (empty: until removed)", "datetime-local", (l) => l.until_unix_ms === undefined ? undefined : local(l.until_unix_ms)],
];

const act = {
  async drain(node) { if (await ask(`Drain I/O node ${node}?`, "It finishes what it accepted, its jobs move to others, and it ends.", null) !== null) change("POST", `/v1/nodes/${node}/drain`); },
  async end(job) { if (await ask(`End job ${job}?`, "The arbiter forgets it. Its processes are not stopped; they lose their I/O nodes.", null) !== null) change("DELETE", `/v1/jobs/${encodeURIComponent(job)}`); },
  async limit(job) {
    const id = `job=${job}`, was = state.limits.get(id) ?? null, now = was ?? {};
    const given = await ask(`Limit ${job}`, "On all its I/O nodes together. Empty: none; all empty: the limit is removed.", null, LIMIT.map(([, label, type, of]) => [label, type, of(now) ?? ""]));
    if (given === null) return;
    const limit = { subject: { job }, most: { ...now.most }, at_least: now.at_least, until_unix_ms: now.until_unix_ms };
    for (const [i, [key, label, type]] of LIMIT.entries()) {
      if (given[i] === null) continue;
      const entered = given[i] === "" ? undefined : type === "number" ? Number(given[i]) : new Date(given[i]).getTime();
      if (entered !== undefined && !(entered > 0)) return toast(`${label}: this is not above 0.`);
      const value = entered === undefined ? undefined : /MB/.test(label) ? entered * 1e6 : entered;
      MOST.includes(key) ? (limit.most[key] = value) : (limit[key] = value);
    }
    const nothing = MOST.every((k) => limit.most[k] === undefined) && limit.at_least === undefined;
    // Whoever else has changed it meanwhile is not overwritten: the arbiter refuses, and says so.
    const seen = `?was=${encodeURIComponent(JSON.stringify(was))}`;
    if (!nothing) return change("POST", `/v1/limits${seen}`, limit);
    if (was) return change("DELETE", `/v1/limits/${encodeURIComponent(id)}${seen}`);
    toast("Nothing was limited.");
  },
  async pin(job) {
    const { pinned = [], nodes: has = [] } = state.jobs.get(job) ?? {};
    const now = pinned.length ? "It is pinned to these." : has.length ? "These are what the policy has given it." : "It has none now.";
    const given = await ask(`Pin ${job}`, `The numbers of the I/O nodes it is to have, whatever the policy says. ${now} Empty: leave it to the policy.`, "text", [], (pinned.length ? pinned : has).join(" "));
    if (given === null) return;
    const nodes = given.split(/[\s,]+/).filter(Boolean).map(Number);
    if (nodes.some((n) => !Number.isInteger(n) || n < 0)) return toast("These are not numbers of I/O nodes.");
    change("PUT", `/v1/jobs/${encodeURIComponent(job)}/nodes`, { nodes });
  },
};

function theme(next) {
  if (next) localStorage.setItem("theme", next);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = localStorage.getItem("theme") ?? (dark ? "dark" : "light");
  redraw();
}
const turn = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

document.addEventListener("keydown", (e) => {
  if (e.key === "Escape" && !$("ask").open) return close();
  if (e.target.closest?.("input, dialog") || e.ctrlKey || e.metaKey || e.altKey) return;
  const to = { o: "", j: "jobs", n: "nodes", d: "decisions", c: "council", h: "history" }[e.key];
  if (to !== undefined) location.hash = `#/${to}`;
  if (e.key === "t") turn();
  if (e.key === "/") { document.querySelector('input[type="search"]')?.focus(); e.preventDefault(); }
  if ((e.key === "ArrowDown" || e.key === "ArrowUp") && $("detail").hidden && document.activeElement === document.body) {
    const list = document.querySelector(".list");
    list?.focus();
    list?.dispatchEvent(new KeyboardEvent("keydown", { key: e.key, cancelable: true }));
    e.preventDefault();
  }
});
addEventListener("hashchange", () => { close(); show(); });
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
$("theme").onclick = turn;
$("login").onclick = login;
$("ask-cancel").onclick = () => $("ask").close("cancel");
onChange(() => {
  if (state.refused?.status === 401 && secret()) { sessionStorage.removeItem("secret"); $("login").textContent = "Log in"; }
  redraw();
});
theme();
show();
loggedIn();
if (!closed) connect();
// The arbiter may have another secret by now.
if (secret()) proves(secret()).then((ok) => { if (ok === false) { sessionStorage.removeItem("secret"); loggedIn(); } });

// For whoever examines the page: a way to feed it without an arbiter.
window.forebay = { state, apply, sample };
