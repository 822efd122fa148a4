// Charts: the moving Gantt of who holds which I/O node, and lines over time (uPlot).

import { clock, colour, lookback, now, state } from "./state.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Rows are I/O nodes, time runs to the right and ends now. With many nodes rows get thinner, down to
// two pixels, and the panel scrolls.
export function gantt(canvas, onPick) {
  const label = 46;
  let rows = [];
  const geometry = () => {
    const width = canvas.clientWidth;
    const height = Math.max(2, Math.min(26, Math.floor(520 / Math.max(1, rows.length))));
    return { width, height, total: rows.length * height + 18 };
  };
  function draw() {
    rows = [...state.held.keys()].sort((a, b) => a - b);
    const { width, height, total } = geometry();
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(total * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(total * ratio);
      canvas.style.height = `${total}px`;
    }
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, total);
    const end = now(), back = lookback();
    const x = (t) => label + ((t - (end - back)) / back) * (width - label);
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    const grid = css("--grid"), soft = css("--soft"), text = css("--text");
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
    const every = Math.ceil(14 / height), bad = css("--bad");
    rows.forEach((node, r) => {
      const top = r * height;
      const spans = state.held.get(node);
      const known = state.nodes.get(node);
      g.textAlign = "right";
      if (r % every === 0) {
        g.fillStyle = known && known.state !== "admitted" ? bad : soft;
        g.fillText(node, label - 6, top + height / 2);
      }
      // Jobs that share a node share its row.
      const open = spans.filter((s) => s.to === null).length;
      spans.forEach((span) => {
        const from = Math.max(label, x(span.from)), to = x(span.to ?? end);
        if (to <= label) return;
        const lane = span.to === null && open > 1 ? spans.filter((s) => s.to === null).indexOf(span) : 0;
        const lanes = span.to === null ? Math.max(1, open) : 1;
        const h = Math.max(1, (height - (height > 5 ? 2 : 0)) / lanes);
        g.fillStyle = colour(span.job);
        g.fillRect(from, top + lane * h, Math.max(1, to - from), h);
        if (h >= 13 && to - from > 60) {
          g.save();
          g.beginPath(); g.rect(from, top, to - from - 4, height); g.clip();
          g.fillStyle = "#fff"; g.textAlign = "left";
          g.fillText(span.job, from + 5, top + lane * h + h / 2);
          g.restore();
        }
      });
      if (known && known.state !== "admitted") {
        g.strokeStyle = bad;
        g.strokeRect(width - 5.5, top + 0.5, 5, Math.max(1, height - 2));
      }
    });
    if (!rows.length) { g.fillStyle = text; g.textAlign = "center"; g.fillText("no I/O node has come yet", width / 2, 9); }
  }
  canvas.addEventListener("click", (e) => {
    const box = canvas.getBoundingClientRect();
    const { width, height } = geometry();
    const node = rows[Math.floor((e.clientY - box.top) / height)];
    if (node === undefined) return;
    const left = e.clientX - box.left;
    const back = lookback(), t = now() - back + ((left - label) / (width - label)) * back;
    const span = left > label && state.held.get(node).find((s) => s.from <= t && (s.to ?? Infinity) >= t);
    span && state.jobs.has(span.job) ? onPick("job", span.job) : onPick("node", node);
  });
  return draw;
}

// Lines over the last minutes; `rows` gives [label, colour, values] for each draw.
export function lines(element, unit, rows, height = 170) {
  let plot = null, names = "";
  const axis = () => ({ stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" });
  function draw() {
    const times = clock(), data = rows().map(([name, stroke, values]) => [name, stroke, values.slice(-times.length)]);
    const wanted = data.map((d) => d[0] + d[1]).join("|") + css("--text");
    const width = element.clientWidth;
    if (!width) return;
    if (!plot || wanted !== names) {
      plot?.destroy();
      names = wanted;
      plot = new uPlot({
        width, height, legend: { live: false }, cursor: { y: false },
        scales: { y: { range: (_, lo, hi) => [0, Math.max(1, hi * 1.1)] } },
        axes: [axis(), { ...axis(), size: 62, values: (_, v) => v.map((n) => amount(n, unit)) }],
        series: [{}, ...data.map(([name, stroke]) => ({
          label: name, stroke, width: 1.5, points: { show: false }, value: (_, v) => (v === null ? "–" : amount(v, unit)),
        }))],
      }, [times, ...data.map((d) => d[2])], element);
    } else {
      if (Math.abs(plot.width - width) > 1) plot.setSize({ width, height });
      plot.setData([times, ...data.map((d) => d[2])]);
    }
  }
  draw.end = () => plot?.destroy();
  return draw;
}

// 1.2 GB/s, 340 MB/s: powers of ten, as everywhere in Forebay.
export function amount(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const [scale, names] = unit === "MB/s" ? [1e6, 1] : unit === "B" ? [1, 1] : [1, 0];
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
