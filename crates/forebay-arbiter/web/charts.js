// Charts: the moving Gantt of who holds which I/O node, and lines over time (uPlot).

import { clock, colour, lookback, now, state } from "./state.js";

// The theme's colours, asked for once a theme: to ask is to have the whole page laid out.
const theme = { name: null, colours: new Map() };
export function css(name) {
  const now = document.documentElement.dataset.theme;
  if (theme.name !== now) { theme.name = now; theme.colours.clear(); }
  if (!theme.colours.has(name)) theme.colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return theme.colours.get(name);
}

// Rows are I/O nodes, time runs to the right and ends now. With many nodes rows get thinner, down to
// two pixels, and the panel scrolls: what is drawn is what is in sight, on a canvas of that size.
export function gantt(box, canvas, onPick) {
  const label = 46, foot = 18;
  const tall = document.createElement("div");
  tall.className = "tall";
  tall.append(canvas);
  box.append(tall);
  let rows = [], known = -1, size = { width: 0, seen: 0 };
  // Sizes change with the window, not with what is drawn: to ask for them each time is to lay out each time.
  new ResizeObserver(() => { size.width = 0; requestAnimationFrame(draw); }).observe(box);
  const row = () => Math.max(2, Math.min(26, Math.floor(520 / Math.max(1, rows.length))));
  let scroll = 0;
  box.addEventListener("scroll", () => { scroll = box.scrollTop; draw(); });
  function draw() {
    if (known !== state.held.size || rows.some((r) => !state.held.has(r))) {
      rows = [...state.held.keys()].sort((a, b) => a - b);
      known = state.held.size;
      size.width = 0;
    }
    const height = row(), all = rows.length * height;
    if (!size.width) {
      tall.style.height = `${all + foot}px`;
      const style = getComputedStyle(box);
      size = { width: tall.clientWidth, seen: Math.min(all + foot, box.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)) };
    }
    const { width, seen: total } = size;
    if (!width || total < foot) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(total * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(total * ratio);
      canvas.style.height = `${total}px`;
    }
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, total);
    if (!rows.length) { g.fillStyle = css("--text"); g.font = "12px system-ui, sans-serif"; g.textAlign = "center"; g.textBaseline = "middle"; g.fillText("no I/O node has come yet", width / 2, 9); return; }
    const end = now(), back = lookback();
    const x = (t) => label + ((t - (end - back)) / back) * (width - label);
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    const grid = css("--grid"), soft = css("--soft");
    g.strokeStyle = grid;
    g.fillStyle = soft;
    g.textAlign = "center";
    const step = back > 150 ? 60 : back > 60 ? 30 : 10;
    for (let ago = 0; ago <= back; ago += step) {
      const at = Math.round(x(end - ago)) + 0.5;
      g.beginPath(); g.moveTo(at, 0); g.lineTo(at, total - 16); g.stroke();
      const word = !ago ? "now" : ago % 60 ? `−${ago} s` : `−${ago / 60} min`;
      g.fillText(word, Math.min(at, width - 12), total - 7);
    }
    const every = Math.ceil(14 / height), bad = css("--bad"), scrolled = Math.max(0, Math.min(scroll, all + foot - total));
    g.save();
    g.beginPath(); g.rect(0, 0, width, total - foot + 1); g.clip();
    const last = Math.min(rows.length, Math.ceil((scrolled + total - foot) / height));
    for (let r = Math.floor(scrolled / height); r < last; r++) {
      const node = rows[r], top = r * height - scrolled;
      const spans = state.held.get(node);
      const its = state.nodes.get(node);
      g.textAlign = "right";
      if (r % every === 0) {
        g.fillStyle = its && its.state !== "admitted" ? bad : soft;
        g.fillText(node, label - 6, Math.max(6, top + height / 2));
      }
      // Jobs that share a node share its row.
      let open = 0, lanesUsed = 0;
      for (const s of spans) open += s.to === null;
      for (const span of spans) {
        const lane = span.to === null ? lanesUsed++ : 0;
        const from = Math.max(label, x(span.from)), to = x(span.to ?? end);
        if (to <= label) continue;
        const lanes = span.to === null ? Math.max(1, open) : 1;
        const h = Math.max(1, (height - (height > 5 ? 2 : 0)) / lanes);
        g.fillStyle = colour(span.job);
        g.fillRect(from, top + lane * h, Math.max(1, to - from), h);
        if (h >= 13 && to - from > 60) {
          g.save();
          g.beginPath(); g.rect(from, top, to - from - 4, height); g.clip();
          g.fillStyle = "#fff"; g.textAlign = "left";
          g.fillText(clip(span.job, Math.max(2, Math.floor((to - from - 10) / 6.2))), from + 5, top + lane * h + h / 2);
          g.restore();
        }
      }
      if (its && its.state !== "admitted") {
        g.strokeStyle = bad;
        g.strokeRect(width - 5.5, top + 0.5, 5, Math.max(1, height - 2));
      }
    }
    g.restore();
  }
  const under = (e) => {
    const at = canvas.getBoundingClientRect(), width = size.width;
    const node = rows[Math.floor((e.clientY - at.top + scroll) / row())];
    if (node === undefined) return {};
    const left = e.clientX - at.left;
    const back = lookback(), t = now() - back + ((left - label) / (width - label)) * back;
    return { node, job: (left > label && state.held.get(node)?.find((s) => s.from <= t && (s.to ?? Infinity) >= t)?.job) || null };
  };
  canvas.addEventListener("click", (e) => {
    const { node, job } = under(e);
    if (node === undefined) return;
    job !== null && state.jobs.has(job) ? onPick("job", job) : onPick("node", node);
  });
  canvas.addEventListener("mousemove", (e) => {
    const { node, job } = under(e), word = node === undefined ? "" : job ?? `I/O node ${node}`;
    if (canvas.title !== word) canvas.title = word;
  });
  return draw;
}

// Lines over the last minutes; `rows` gives [label, colour, values] for each draw.
export function lines(element, unit, rows, height = 170) {
  let plot = null, names = "", width = 0;
  const watch = new ResizeObserver(() => { width = 0; });
  watch.observe(element);
  const axis = () => ({ stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" });
  const when = { space: 80, size: 30, values: (_, v) => v.map((t) => new Date(t * 1000).toLocaleTimeString([], { hour12: false })) };
  function draw() {
    const times = clock(), data = rows().map(([name, stroke, values]) => [name, stroke, values.slice(-times.length)]);
    const wanted = data.map((d) => d[0] + d[1]).join("|") + css("--text");
    width ||= element.clientWidth;
    if (!width) return;
    if (!plot || wanted !== names) {
      plot?.destroy();
      names = wanted;
      plot = new uPlot({
        width, height, legend: { live: false }, cursor: { y: false },
        scales: { y: { range: (_, lo, hi) => [0, Math.max(1, hi * 1.1)] } },
        axes: [{ ...axis(), ...when }, { ...axis(), size: 62, values: (_, v) => v.map((n) => amount(n, unit)) }],
        series: [{}, ...data.map(([name, stroke]) => ({
          label: clip(name, 24), stroke, width: 1.5, points: { show: false }, value: (_, v) => (v === null ? "–" : amount(v, unit)),
        }))],
      }, [times, ...data.map((d) => d[2])], element);
      element.querySelectorAll(".u-legend .u-label").forEach((l, i) => { if (i) l.title = data[i - 1][0]; });
    } else {
      if (Math.abs(plot.width - width) > 1) plot.setSize({ width, height });
      plot.setData([times, ...data.map((d) => d[2])]);
    }
  }
  draw.end = () => { watch.disconnect(); plot?.destroy(); };
  return draw;
}

// What is long ends in an ellipsis; whoever shows it so has the whole in a title.
export function clip(text, most = 40) {
  if (text.length <= most) return text;
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
}

// 1.2 GB/s, 340 MB/s: powers of ten, as everywhere in Forebay.
export function amount(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const [scale, names] = unit === "MB/s" ? [1e6, 1] : unit === "B" ? [1, 1] : [1, 0];
  if (unit === "ms") return span(value * 1e6);
  if (!names) return (Math.abs(value) >= 1e4 ? `${(value / 1e3).toFixed(0)}k` : value.toFixed(value < 10 && value % 1 ? 1 : 0)) + (unit ? ` ${unit}` : "");
  let bytes = value * scale, i = 0;
  const words = ["B", "kB", "MB", "GB", "TB", "PB"];
  while (Math.abs(bytes) >= 999.5 && i < words.length - 1) { bytes /= 1000; i++; }
  const digits = bytes < 9.95 && i ? 1 : 0;
  return `${bytes.toFixed(digits)} ${words[i]}${unit === "MB/s" ? "/s" : ""}`;
}

export function span(nanos) {
  if (!nanos) return "–";
  if (nanos < 1e6) return `${(nanos / 1e3).toFixed(0)} µs`;
  if (nanos < 1e9) return `${(nanos / 1e6).toFixed(1)} ms`;
  return `${(nanos / 1e9).toFixed(2)} s`;
}

export function ago(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}
