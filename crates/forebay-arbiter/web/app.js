// The page: which view is shown, keys, login, actions.

import { apply, connect, onChange, refuse, sample, secret, state } from "./state.js";
import { jobDetail, nodeDetail, pill, views } from "./views.js";

const $ = (id) => document.getElementById(id);
let view = null, detail = null, queued = false;

// However much happens, the page is drawn at most once a frame, and not while nobody sees it.
function redraw() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => {
    queued = false;
    view?.draw();
    detail?.draw();
    const about = state.about;
    const word = state.refused ? "no access" : !state.connected ? (about ? "connection lost" : "connecting") : about?.state ?? "connecting";
    const why = state.refused ? state.refused.why : state.connected && about?.state === "standby" ? `This arbiter stands by. ${about.why ?? ""}` : "";
    if ($("notice").textContent !== why) { $("notice").textContent = why; $("notice").hidden = !why; $("main").hidden = !!state.refused; }
    if ($("state").textContent !== word) { const p = pill(word); p.id = "state"; p.setAttribute("role", "status"); p.setAttribute("aria-live", "polite"); if (about?.why) p.title = about.why; $("state").replaceWith(p); }
  });
}

function show() {
  const name = location.hash.replace(/^#\/?/, "") || "overview";
  const make = views[name] ?? views.overview;
  view?.end?.();
  $("main").replaceChildren();
  view = make($("main"), pick);
  for (const a of document.querySelectorAll("nav a")) a.dataset.view === (views[name] ? name : "overview") ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
  redraw();
}

function pick(kind, id) {
  close();
  $("detail").hidden = false;
  const shut = document.createElement("button");
  shut.type = "button"; shut.textContent = "Close (Esc)"; shut.onclick = close;
  const bar = document.createElement("div");
  bar.className = "actions"; bar.append(shut);
  $("detail").append(bar);
  detail = kind === "job" ? jobDetail($("detail"), id, act) : nodeDetail($("detail"), id, act, pick);
  shut.focus();
  redraw();
}

function close() {
  detail?.end?.();
  detail = null;
  $("detail").hidden = true;
  $("detail").replaceChildren();
}

function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $("toast").hidden = true; }, 6000);
}

function ask(title, text, input) {
  $("ask-title").textContent = title;
  $("ask-text").textContent = text;
  $("ask-input").hidden = input === null;
  $("ask-input").type = input === "secret" ? "password" : "text";
  $("ask-input").value = "";
  $("ask").showModal();
  return new Promise((done) => {
    $("ask").onclose = () => done($("ask").returnValue === "ok" ? $("ask-input").value.trim() : null);
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
  else if (given) sessionStorage.setItem("secret", given);
  loggedIn();
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

const act = {
  async drain(node) { if (await ask(`Drain I/O node ${node}?`, "It finishes what it accepted, its jobs move to others, and it ends.", null) !== null) change("POST", `/v1/nodes/${node}/drain`); },
  async end(job) { if (await ask(`End job ${job}?`, "The arbiter forgets it. Its processes are not stopped; they lose their I/O nodes.", null) !== null) change("DELETE", `/v1/jobs/${encodeURIComponent(job)}`); },
  async limit(job) {
    const given = await ask(`Limit ${job}`, "MB/s on all its I/O nodes together. Empty: no limit.", "text");
    if (given === null) return;
    if (!given) return change("DELETE", `/v1/limits/${encodeURIComponent(`job=${job}`)}`);
    if (!(Number(given) > 0)) return toast("This is no number of MB/s.");
    change("POST", "/v1/limits", { subject: { job }, most: { bandwidth: Number(given) * 1e6 } });
  },
  async pin(job) {
    const given = await ask(`Pin ${job}`, "The numbers of the I/O nodes it is to have, whatever the policy says. Empty: leave it to the policy again.", "text");
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
  if ((e.key === "ArrowDown" || e.key === "ArrowUp") && $("detail").hidden && document.activeElement === document.body) document.querySelector(".list")?.focus();
});
addEventListener("hashchange", () => { close(); show(); });
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
$("theme").onclick = turn;
$("login").onclick = login;
onChange(() => {
  if (state.refused?.status === 401 && secret()) { sessionStorage.removeItem("secret"); $("login").textContent = "Log in"; }
  redraw();
});
theme();
show();
loggedIn();
if (!closed) connect();

// For whoever examines the page: a way to feed it without an arbiter.
window.forebay = { state, apply, sample };
