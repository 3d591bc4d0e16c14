"use strict";
// Draws the report from the blocks of data before it. All text comes into the page as text nodes, never as HTML.
(() => {
const blocks = () => Object.fromEntries(
  [...document.querySelectorAll('script[type="application/json"]')].map((block) => [block.id, block.textContent]));

// An open page that follows a run loads its own file anew in a hidden frame; that copy hands over its data and ends here.
if (window.parent !== window && location.hash === "#probe") {
  window.parent.postMessage({ sparring: blocks() }, location.protocol === "file:" ? "*" : location.origin);
  return;
}

let packed = blocks();
let data = JSON.parse(packed.data);

// ------------------------------------------------------------------ elements, words
const $ = (selector, at = document) => at.querySelector(selector);
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const words = (name) => name.replaceAll("_", " ").replaceAll(".", " · ");
const many = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
function figure(given) {
  if (given === null || given === undefined) return "–";
  const value = +given.toPrecision(4);
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (Number.isInteger(value)) return String(value);
  if (size < 0.001) return value.toExponential(1);
  return value.toFixed(size < 0.1 ? 4 : size < 10 ? 3 : 1);
}
const blue = "var(--g)", orange = "var(--d)"; // of the two players, and of nothing else
const colours = ["var(--s2)", "var(--s3)", "var(--s4)", "var(--s5)", "var(--s6)", "var(--s7)", "var(--s8)", "var(--s9)"];
const fixed = { generator: blue, discriminator: orange, author: blue, opponent: orange, first: blue, second: orange };
const colourOf = (name, index) => fixed[name] ?? colours[index % colours.length];
const several = () => data.runs.length > 1;
const mark = (number) => several() && el("span", { class: `mark m${number % 4}`, "aria-hidden": "true" }, "ABCDEFGHIJ"[number] ?? String(number + 1));
const column = (run, path) => run.columns[path] ?? [];
const stepsOf = (run) => run.columns.step ?? [];
const lastStep = (run) => Math.max(0, ...stepsOf(run));
const lastOf = (values) => values.findLast((value) => value !== null && value !== undefined) ?? null;

// ------------------------------------------------------------------ the marked step
const cursor = { step: null, watchers: [] };
function moveCursor(step) {
  if (step === cursor.step) return;
  cursor.step = step;
  for (const watch of cursor.watchers) watch();
}
function valueAt(run, path, step) {
  const values = column(run, path);
  if (step === null) return lastOf(values);
  return values[stepsOf(run).indexOf(step)] ?? null;
}
// Makes a drawing answer to pointer and arrow keys; steps: those that can be marked, x: where they are drawn.
function markable(node, number, steps, stepAt) {
  const near = (step) => steps().reduce((best, s) => (Math.abs(s - step) < Math.abs(best - step) ? s : best), steps()[0]);
  node.addEventListener("pointermove", (event) => {
    if (steps().length) moveCursor(near(stepAt(event.clientX - node.getBoundingClientRect().left)));
  });
  node.addEventListener("dblclick", () => openStep(number, cursor.step));
  node.addEventListener("keydown", (event) => {
    const all = steps(), at = all.indexOf(cursor.step);
    const to = { ArrowLeft: at < 0 ? all.length - 1 : at - 1, ArrowRight: at < 0 ? 0 : at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined && all.length) { moveCursor(all[Math.min(Math.max(to, 0), all.length - 1)]); event.preventDefault(); }
    if (event.key === "Enter") openStep(number, cursor.step);
  });
}

// ------------------------------------------------------------------ drawing
const MARGIN = { left: 40, right: 8, top: 16, bottom: 20 };
function ticks(low, high, count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const size = power * ([1, 2, 5, 10].find((n) => n * power >= rough) ?? 10);
  const found = [];
  for (let value = Math.ceil(low / size - 1e-9) * size; value <= high + size * 1e-9; value += size) found.push(Math.abs(value) < size * 1e-9 ? 0 : value);
  return found;
}
const tickText = (value) => (Math.abs(value) >= 1e4 || (value && Math.abs(value) < 1e-3) ? value.toExponential(0) : String(+value.toPrecision(4)));
function stages(run) {
  const found = [];
  for (const [step, stage] of run.phases) {
    const last = found.at(-1);
    if (last && last.stage === stage) last.to = step;
    else found.push({ stage, from: step, to: step });
  }
  return found.filter((band) => band.stage);
}
function range(lists, zero) {
  const all = lists.flat().filter((value) => value !== null && value !== undefined);
  if (!all.length) return [0, 1];
  let low = Math.min(...all), high = Math.max(...all);
  if (zero) { low = Math.min(0, low); high = Math.max(0, high); }
  if (low >= 0 && high <= 1 && high > 0.3 && zero) high = 1;
  if (zero && low === high) return [0, 1];
  if (low === high) { low -= Math.abs(low) * 0.1 || 0.5; high += Math.abs(high) * 0.1 || 0.5; }
  const room = zero ? 0 : (high - low) * 0.06;
  return [low - room, high + room];
}
function bands(run, x, top, bottom, labels) {
  return stages(run).map((band, index) => {
    const left = x(band.from - 0.5), width = x(band.to + 0.5) - left;
    return [
      index % 2 === 0 && svg("rect", { class: "band", x: left, y: top, width, height: bottom - top }),
      labels && width > 14 && svg("text", { x: left + 3, y: top - 4 }, width > 52 ? `stage ${band.stage}` : String(band.stage)),
    ];
  });
}
// A line joins the values on both sides of steps without one; a policy's stops there, since the policy did not learn.
function polyline(run, path, x, y, colour) {
  const steps = stepsOf(run), pieces = [[]], gaps = run.policies.some((policy) => path.startsWith(`${policy}.`));
  column(run, path).forEach((value, i) => {
    if (value !== null) pieces.at(-1).push([x(steps[i]), y(value)]);
    else if (gaps) pieces.push([]);
  });
  const sparse = pieces.flat().length <= 24;
  return pieces.map((points) => [
    points.length > 1 && svg("path", { class: "line", stroke: colour, d: "M" + points.map((p) => p.map((n) => n.toFixed(1)).join(" ")).join("L") }),
    (sparse || points.length === 1) && points.map(([px, py]) => svg("circle", { cx: px, cy: py, r: 2.6, fill: colour })),
  ]);
}

const hidden = new Set();
class Chart {
  // series: run -> [[label, path]]; off: labels hidden at first
  constructor(title, series, { zero = true, off = () => false } = {}) {
    Object.assign(this, { title, series, zero, off, signature: "" });
    this.at = el("span", { class: "at" });
    this.panels = el("div", { class: "panels" });
    this.node = el("figure", { class: "card chart" }, el("figcaption", { class: "title" }, el("h3", {}, title), this.at), this.panels);
    cursor.watchers.push(() => this.readout());
  }
  key(label) { return `${this.title}/${label}`; }
  update() {
    const all = data.runs.map((run) => this.series(run));
    const signature = JSON.stringify(all);
    if (signature === this.signature) return this.draw();
    this.signature = signature;
    this.parts = data.runs.map((run, number) => {
      const host = el("div", { class: "plot", tabindex: 0, role: "img" });
      const legend = all[number].map(([label, path], index) => {
        const first = `${this.title}/${label}`;
        if (this.off(label, index) && !hidden.has("seen " + first)) hidden.add(first);
        hidden.add("seen " + first);
        const value = el("b", {});
        const toggle = () => {
          if (!hidden.delete(first)) hidden.add(first);
          this.draw();
        };
        const button = el("button", { type: "button", onclick: toggle }, el("i", {}), el("span", {}, words(label)), value);
        button.style.color = colourOf(label, index);
        return { label, path, button, value, colour: colourOf(label, index) };
      });
      const part = { number, host, legend, x: null };
      markable(host, number, () => stepsOf(data.runs[number]), (px) => part.back(px));
      part.node = el("div", { class: "panel" }, several() && el("div", { class: "who" }, mark(number), run.name), host,
        legend.length ? el("div", { class: "legend" }, legend.map((item) => item.button)) : el("p", { class: "note" }, "not in this run"));
      return part;
    });
    this.panels.replaceChildren(...this.parts.map((part) => part.node));
    this.draw();
  }
  draw() {
    if (!this.parts) return;
    const shown = (item) => !hidden.has(this.key(item.label));
    const [low, high] = range(this.parts.flatMap((p) => p.legend.filter(shown).map((item) => column(data.runs[p.number], item.path))), this.zero);
    const last = Math.max(1, ...data.runs.map(lastStep));
    for (const part of this.parts) {
      const run = data.runs[part.number], width = Math.max(150, part.host.clientWidth || 300), height = 190;
      const left = MARGIN.left, right = width - MARGIN.right, top = MARGIN.top, bottom = height - MARGIN.bottom;
      const x = (step) => left + ((step + 0.5) / (last + 1)) * (right - left);
      const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
      part.back = (px) => ((px - left) / (right - left)) * (last + 1) - 0.5;
      part.cursor = svg("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
      part.x = x;
      part.host.replaceChildren(svg("svg", { width, height, "aria-hidden": "true" },
        bands(run, x, top, bottom, true),
        ticks(low, high, 4).map((value) => [svg("line", { class: "axis", x1: left, x2: right, y1: y(value), y2: y(value) }), svg("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, tickText(value))]),
        ticks(0, last, Math.max(2, Math.min(8, (right - left) / 60))).filter(Number.isInteger).map((step) => svg("text", { x: x(step), y: height - 5, "text-anchor": "middle" }, String(step))),
        part.legend.filter(shown).map((item) => polyline(run, item.path, x, y, item.colour)),
        part.cursor));
      for (const item of part.legend) item.button.setAttribute("aria-pressed", String(shown(item)));
    }
    this.readout();
  }
  readout() {
    if (!this.parts) return;
    const step = cursor.step;
    this.at.textContent = step === null ? "last" : `step ${step}`;
    for (const part of this.parts) {
      const run = data.runs[part.number];
      const told = part.legend.map((item) => {
        item.value.textContent = figure(valueAt(run, item.path, step));
        return `${words(item.label)} ${item.value.textContent}`;
      });
      part.host.setAttribute("aria-label", `${this.title}, ${run.name}, ${step === null ? "last step" : "step " + step}: ${told.join(", ")}. Arrow keys mark a step, Enter opens its episodes.`);
      if (!part.x) continue;
      const there = step !== null && step <= lastStep(run);
      part.cursor.setAttribute("visibility", there ? "visible" : "hidden");
      if (there) for (const end of ["x1", "x2"]) part.cursor.setAttribute(end, part.x(step));
    }
  }
}

// ------------------------------------------------------------------ overview
const STATE = { finished: "good", failed: "bad", interrupted: "warn", "going on": "" };
const COUNTS = new Set(["unjudged", "illegal"]);
const heldOut = (run) => Object.keys(run.columns).filter((path) => path.startsWith("held_out.")).map((path) => path.slice(9));
const mainScores = (run) => heldOut(run).filter((name) => !COUNTS.has(name)).slice(0, 4);
function overview() {
  const games = [...new Set(data.runs.map((run) => run.game))];
  const body = [
    games.length > 1 && el("p", { class: "notice" }, `These are runs of different games (${games.map(words).join(", ")}): figures of the same name do not mean the same.`),
    el("div", { class: "side" }, data.runs.map(runCard)),
    several() && differences(),
  ];
  $("#overview .body").replaceChildren(...body.filter(Boolean));
}
function runCard(run, number) {
  const done = lastStep(run);
  const scores = mainScores(run).map((name) => {
    const values = column(run, `held_out.${name}`).filter((value) => value !== null);
    return el("div", { class: "score" }, el("div", { class: "name" }, words(name)), el("div", { class: "value" }, figure(values.at(-1))),
      el("div", { class: "from" }, values.length > 1 ? `from ${figure(values[0])}` : "held out"));
  });
  const seconds = Object.entries(run.seconds).filter(([, value]) => value >= 0.5).map(([name, value]) => `${words(name)} ${Math.round(value)}`);
  const versions = Object.entries(run.versions).map(([name, value]) => `${name} ${value}`);
  return el("article", { class: "card run" },
    el("header", {}, el("h3", {}, mark(number), run.name), el("span", { class: "pill" }, words(run.game)),
      el("span", { class: `pill ${STATE[run.state]}` }, run.state), el("span", { class: "pill" }, run.total ? `${done} of ${many(run.total, "step")}` : many(done, "step"))),
    scores.length ? el("div", { class: "scores" }, scores)
      : el("p", { class: "note" }, done ? "No held-out scores: evaluation was off." : "Nothing yet: the run has written no step."),
    el("p", { class: "facts" }, run.path), seconds.length > 0 && el("p", { class: "facts" }, "seconds: " + seconds.join(", ")),
    versions.length > 0 && el("p", { class: "facts" }, versions.join(" · ")),
    el("details", { class: "facts" }, el("summary", {}, many(Object.keys(run.config).length, "setting")),
      el("table", {}, Object.entries(run.config).map(([key, value]) => el("tr", {}, el("td", {}, el("code", {}, key)), el("td", {}, el("code", {}, value)))))));
}
function differences() {
  const keys = [...new Set(data.runs.flatMap((run) => Object.keys(run.config)))];
  const differ = keys.filter((key) => new Set(data.runs.map((run) => run.config[key])).size > 1);
  return el("details", { class: "card", open: differ.length <= 16 }, el("summary", {}, differ.length ? `Settings that differ (${differ.length})` : "The settings are the same"),
    differ.length > 0 && el("table", {}, el("tr", {}, el("th", {}, "key"), data.runs.map((run, number) => el("th", {}, mark(number), run.name))),
      differ.map((key) => el("tr", {}, el("td", {}, el("code", {}, key)), data.runs.map((run) => el("td", {}, el("code", {}, run.config[key] ?? "–")))))));
}

// ------------------------------------------------------------------ the curriculum's time line
function timeline() {
  const last = Math.max(1, ...data.runs.map((run) => Math.max(lastStep(run), run.total ?? 0)));
  const host = $("#curriculum .body");
  const old = $(".swatches", host);
  if (!old || host.childElementCount !== data.runs.length + 1) {
    const swatch = (colour, text) => { const i = el("i", {}); i.style.background = colour; return el("span", {}, i, text); };
    host.replaceChildren(...data.runs.map((run, number) => {
      const plot = el("div", { class: "plot", tabindex: 0, role: "img" });
      plot.timeline = { back: () => 0 };
      markable(plot, number, () => data.runs[number].phases.map(([step]) => step), (px) => plot.timeline.back(px));
      return el("div", { class: "card timeline" }, several() && el("h3", {}, mark(number), run.name), plot, el("p", { class: "note" }));
    }), el("div", { class: "swatches" }, swatch("var(--g)", "generator learns"), swatch("var(--d)", "discriminator learns"),
      swatch("var(--good)", "evaluated on held-out problems"), swatch("var(--ink)", "checkpoint kept (ringed: the best)")));
    cursor.watchers.push(timelineReadout);
  }
  data.runs.forEach((run, number) => drawTimeline(host.children[number], run, last));
  timelineReadout();
}
function drawTimeline(card, run, last) {
  const plot = $(".plot", card), width = Math.max(200, plot.clientWidth || 600), left = 98, right = width - 10;
  const x = (step) => left + ((step - 0.5) / last) * (right - left), cell = (right - left) / last;
  const rows = run.policies, top = 20, height = top + rows.length * 22 + 52;
  const learned = (policy, step) => valueAt(run, `${policy}.trained_tokens`, step) !== null;
  const evaluated = heldOut(run)[0] ? stepsOf(run).filter((step) => valueAt(run, `held_out.${heldOut(run)[0]}`, step) !== null) : [];
  const label = (y, text) => svg("text", { x: left - 8, y, "text-anchor": "end" }, text);
  const under = top + rows.length * 22;
  plot.timeline = { back: (px) => ((px - left) / (right - left)) * last + 0.5, x, under };
  plot.replaceChildren(svg("svg", { width, height, "aria-hidden": "true" },
    bands(run, x, top, under + 30, true),
    rows.map((policy, row) => [label(top + row * 22 + 15, policy), run.phases.map(([step]) => learned(policy, step) &&
      svg("rect", { x: x(step - 0.5 + 0.0) + Math.min(1, cell * 0.1), y: top + row * 22 + 3, width: Math.max(1, cell - Math.min(2, cell * 0.2)), height: 16, rx: Math.min(3, cell / 4), fill: colourOf(policy, row) }))]),
    label(under + 12, "evaluated"), evaluated.map((step) => svg("circle", { cx: x(Math.max(step, 0.5)), cy: under + 8, r: 3.5, fill: "var(--good)" })),
    label(under + 28, "checkpoints"), run.checkpoints.steps.map((step) => svg("rect", { x: x(step) - 3.2, y: under + 20.8, width: 6.4, height: 6.4, transform: `rotate(45 ${x(step)} ${under + 24})`, fill: "var(--ink)" })),
    run.checkpoints.best !== null && svg("circle", { cx: x(run.checkpoints.best), cy: under + 24, r: 7.5, fill: "none", stroke: "var(--ink)" }),
    ticks(0, last, Math.max(3, Math.min(14, width / 70))).filter((s) => s && Number.isInteger(s)).map((step) => svg("text", { x: x(step), y: height - 4, "text-anchor": "middle" }, String(step))),
    run.total > lastStep(run) && svg("rect", { x: x(lastStep(run) + 0.5), y: top, width: x(run.total + 0.5) - x(lastStep(run) + 0.5), height: under - top + 30, fill: "none", stroke: "var(--line)", "stroke-dasharray": "4 4" }),
    svg("line", { class: "cursor", y1: top, y2: under + 32, visibility: "hidden" })));
}
function timelineReadout() {
  [...document.querySelectorAll(".timeline")].forEach((card, number) => {
    const run = data.runs[number], plot = $(".plot", card), line = $(".cursor", card);
    const entry = run?.phases.find(([step]) => step === cursor.step);
    let told = run ? `${many(run.phases.length, "step")}${stages(run).length ? ", " + many(stages(run).length, "stage") : ""}` : "";
    if (entry) {
      const learning = run.policies.filter((policy) => valueAt(run, `${policy}.trained_tokens`, entry[0]) !== null);
      told = `step ${entry[0]}${entry[1] ? `, stage ${entry[1]}${run.stages[entry[1]] ? " (" + run.stages[entry[1]] + ")" : ""}` : ""}, phase ${entry[2] ?? "–"}: ${learning.length ? learning.join(" and ") + (learning.length > 1 ? " learn" : " learns") : "nobody learned"}`;
      for (const end of ["x1", "x2"]) line?.setAttribute(end, plot.timeline.x(entry[0]));
    }
    line?.setAttribute("visibility", entry ? "visible" : "hidden");
    $(".note", card).textContent = told;
    plot.setAttribute("aria-label", `Time line: ${told}`);
  });
}

// ------------------------------------------------------------------ curves
const byPolicy = (name) => (run) => run.policies.filter((p) => run.columns[`${p}.${name}`]).map((p) => [p, `${p}.${name}`]);
const paths = (...names) => (run) => names.filter((name) => run.columns[name]).map((name) => [name, name]);
const charts = [
  new Chart("Held-out scores", (run) => heldOut(run).map((name) => [name, `held_out.${name}`]), { off: (label, index) => index > 3 || COUNTS.has(label) }),
  new Chart("Rewards in training", (run) => run.players.map((p) => [p, `${p}_reward`])),
  new Chart("Validity and kill rate", paths("validity", "kill_rate")),
  new Chart("Policy loss", byPolicy("policy_loss"), { zero: false }),
  new Chart("Value loss", byPolicy("value_loss")),
  new Chart("Entropy", byPolicy("entropy")),
  new Chart("KL to the initial model", byPolicy("kl_to_initial")),
  new Chart("Gradient norm", byPolicy("gradient_norm")),
  new Chart("Mismatch of engine and learner", byPolicy("mismatch_max")),
  new Chart("Tokens per second", paths("tokens_per_s")),
  new Chart("Seconds of a step", (run) => Object.keys(run.columns).filter((p) => p.startsWith("seconds.")).map((p) => [p.slice(8), p])),
];
const picked = new Chart("Any figure of metrics.jsonl", (run) => (run.columns[select.value] ? [[select.value, select.value]] : []), { zero: false });
const select = el("select", { "aria-label": "Figure", onchange: () => picked.update() });
const tasks = el("div", { class: "side" });
function curves() {
  const host = $("#curves .body");
  $("#curves").classList.toggle("two", several());
  if (!host.childElementCount)
    host.append(el("div", { class: "grid curves" }), el("div", { class: "pick" }, el("label", {}, "any other figure: ", select)), picked.node, tasks);
  const shown = charts.filter((chart) => data.runs.some((run) => chart.series(run).length));
  const grid = host.firstChild;
  if (!shown.length) grid.replaceChildren(el("p", { class: "note" }, "No figures yet."));
  else if ([...grid.children].some((node, i) => node !== shown[i]?.node) || grid.childElementCount !== shown.length) grid.replaceChildren(...shown.map((chart) => chart.node));
  const all = [...new Set(data.runs.flatMap((run) => Object.keys(run.columns)))].filter((p) => p !== "step" && p !== "stage");
  if (select.options.length !== all.length) {
    const before = select.value;
    select.replaceChildren(...all.map((path) => el("option", { value: path }, words(path))));
    select.value = all.includes(before) ? before : all.find((p) => p.endsWith("clip_fraction")) ?? all[0] ?? "";
  }
  for (const chart of [...shown, picked]) chart.update();
  taskHistory();
}
function taskHistory() {
  const open = [...tasks.children].map((node) => node.open);
  tasks.replaceChildren(...data.runs.map((run, number) => {
    const names = Object.keys(run.tasks.problems);
    if (!names.length) return "";
    const rank = (name) => run.tasks.problems[name].reduce((sum, value) => sum + (value ?? 0), 0);
    const sorted = names.map((name) => [rank(name), name]).sort((a, b) => a[0] - b[0]).map(([, name]) => name);
    const card = el("details", { class: "card", open: open[number] ?? false }, el("summary", {}, mark(number), `Held-out problems one by one (${names.length}, the hardest first)`));
    const draw = () => {
      if (!card.open || card.childElementCount > 1) return;
      card.append(el("div", { class: "scroll" }, el("table", { class: "dots" }, el("tr", {}, el("th", {}, "step"), run.tasks.steps.map((step) => el("th", { class: "n" }, String(step)))),
        sorted.map((name) => el("tr", {}, el("th", {}, name), run.tasks.problems[name].map((value) => {
          const cell = el("td", { class: "n" }, figure(value));
          if (value !== null) cell.style.background = heatColour(Math.max(0, Math.min(1, value)) * 0.7);
          return cell;
        }))))));
    };
    card.addEventListener("toggle", draw);
    draw();
    return card;
  }));
}

// ------------------------------------------------------------------ reward components
function components() {
  const host = $("#components .body");
  const players = [...new Set(data.runs.flatMap((run) => run.players))];
  const of = (run, player) => Object.keys(run.columns).filter((p) => p.startsWith(`${player}_components.`));
  host.replaceChildren(...players.map((player, index) => {
    const names = [...new Set(data.runs.flatMap((run) => of(run, player)))];
    const ranges = Object.fromEntries(names.map((path) => [path, range(data.runs.map((run) => column(run, path)), true)]));
    return names.length > 0 && el("div", { class: "side" }, data.runs.map((run, number) => of(run, player).length > 0 && el("article", { class: "card" },
      el("h3", {}, mark(number), player, several() && ` · ${run.name}`),
      el("div", { class: "sparks" }, of(run, player).map((path) => spark(run, path, ranges[path], colourOf(player, index)))))));
  }).filter(Boolean));
  if (!host.childElementCount) host.append(el("p", { class: "note" }, "No reward was recorded."));
  host.className = several() ? "body stack" : "body side";
}
function spark(run, path, [low, high], colour) {
  const width = 168, height = 46, last = Math.max(1, ...data.runs.map(lastStep));
  const x = (step) => 2 + ((step + 0.5) / (last + 1)) * (width - 4), y = (value) => height - 4 - ((value - low) / (high - low)) * (height - 8);
  const name = path.slice(path.indexOf(".") + 1), values = column(run, path);
  return el("div", { class: "spark" }, el("div", { class: "name" }, words(name), el("b", {}, figure(lastOf(values)))),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": `${words(name)}: from ${figure(values.find((v) => v !== null))} to ${figure(lastOf(values))}` },
      bands(run, x, 0, height, false), svg("line", { class: "axis", x1: 0, x2: width, y1: y(0), y2: y(0) }),
      polyline(run, path, x, y, colour)));
}

// ------------------------------------------------------------------ kill matrix
const heatColour = (share) => `color-mix(in oklab, var(--heat-1) ${Math.round(share * 100)}%, var(--heat-0))`;
const matrices = [];
const SURE = 30;
function kills() {
  const host = $("#kills .body");
  if (matrices.length !== data.runs.length) {
    matrices.length = 0;
    host.replaceChildren(el("div", { class: "side" }, data.runs.map((run, number) => {
      const plot = el("div", { class: "plot heat", tabindex: 0, role: "img" }), told = el("p", { class: "readout", "aria-live": "polite" });
      const matrix = { plot, told, at: null, node: el("div", { class: "card" }, several() && el("h3", {}, mark(number), run.name), plot, told) };
      plot.addEventListener("keydown", (event) => {
        const count = data.runs[number].kills.cells.length, move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[event.key];
        if (!move || !count) return;
        const [i, j] = matrix.at ?? [0, 0], keep = (n) => Math.min(count - 1, Math.max(0, n));
        killAt(number, keep(i + move[0]), keep(j + move[1]));
        event.preventDefault();
      });
      plot.addEventListener("pointermove", (event) => {
        const box = plot.getBoundingClientRect(), at = matrix.cell?.(event.clientX - box.left, event.clientY - box.top);
        if (at) killAt(number, ...at);
      });
      matrices.push(matrix);
      return matrix.node;
    })), el("p", { class: "note" }, `A row is the step that wrote the suites, a column the step that wrote the programs; the stronger the colour, the more of the pairs of a program and a suite with valid tests in which the suite kills the program; a smaller square rests on fewer than ${SURE} pairs. A run plays the programs of a step on the suites of the same step: that is the diagonal, and it is complete for the stored steps. Other cells hold only those pairs whose outcome follows from what is stored, since the same program met the same tests, word for word, in some step; they rest on programs that came up again, which are rather the common ones. An empty cell: nothing of it is stored.`));
  }
  host.lastChild.hidden = !data.runs.some((run) => run.kills.cells.length);
  data.runs.forEach(drawKills);
}
function drawKills(run, number) {
  const { bins, cells } = run.kills, matrix = matrices[number];
  if (!cells.length) {
    matrix.plot.replaceChildren();
    matrix.told.textContent = run.index.length ? "No suites are stored: nobody writes tests in this game, or none of them was valid." : "No attempts are stored.";
    matrix.cell = null;
    matrix.plot.removeAttribute("tabindex");
    matrix.plot.setAttribute("aria-label", matrix.told.textContent);
    return;
  }
  matrix.plot.setAttribute("tabindex", "0");
  const width = Math.max(220, Math.min(544, 64 + cells.length * 64, matrix.plot.clientWidth || 400)), left = 58, top = 6, size = (width - left - 6) / cells.length, side = size * cells.length;
  const sure = cells.flat().filter(([, pairs]) => pairs >= SURE);
  const top_ = Math.max(...(sure.length ? sure : cells.flat()).map(([killed, pairs]) => (pairs ? killed / pairs : 0)), 0.01);
  const square = ([killed, pairs], i, j) => {
    const edge = Math.max(1, (size - 0.6) * Math.sqrt(Math.min(1, pairs / SURE))), inset = (size - edge) / 2;
    return pairs > 0 && svg("rect", { x: left + j * size + inset, y: y(i) + inset, width: edge, height: edge, fill: heatColour(Math.min(1, killed / pairs / top_)) });
  };
  const name = ([from, to]) => (from === to ? String(from) : `${from}–${to}`);
  matrix.cell = (px, py) => {
    const j = Math.floor((px - left) / size), i = cells.length - 1 - Math.floor((py - top) / size);
    return cells[i]?.[j] ? [i, j] : null;
  };
  const y = (i) => top + (cells.length - 1 - i) * size, every = Math.ceil(cells.length / 10);
  matrix.frame = svg("rect", { fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, width: size, height: size, visibility: "hidden" });
  matrix.place = (i, j) => { matrix.frame.setAttribute("x", left + j * size); matrix.frame.setAttribute("y", y(i)); matrix.frame.setAttribute("visibility", "visible"); };
  matrix.plot.replaceChildren(svg("svg", { width, height: side + 39, "aria-hidden": "true" },
    svg("rect", { x: left, y: top, width: side, height: side, fill: "none", stroke: "var(--line)" }),
    cells.map((row, i) => row.map((cell, j) => square(cell, i, j))),
    bins.map((bin, i) => i % every === 0 && [svg("text", { x: left - 5, y: y(i) + size / 2 + 4, "text-anchor": "end" }, name(bin)), svg("text", { x: left + (i + 0.5) * size, y: top + side + 13, "text-anchor": "middle" }, String(bin[0]))]),
    svg("text", { x: left + side / 2, y: top + side + 27, "text-anchor": "middle" }, "programs of step"),
    svg("text", { x: 10, y: top + side / 2, "text-anchor": "middle", transform: `rotate(-90 10 ${top + side / 2})` }, "suites of step"), matrix.frame));
  if (matrix.at) killAt(number, ...matrix.at);
  else {
    const diagonal = cells.map((row, i) => row[i]).filter(([, pairs]) => pairs);
    const all = diagonal.reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]);
    matrix.told.textContent = `On the diagonal ${figure(all[1] ? all[0] / all[1] : null)} of ${all[1].toLocaleString("en")} (program, suite) pairs are kills; the darkest colour is ${figure(top_)}${top_ < 1 ? " and above" : ""}.`;
  }
  matrix.plot.setAttribute("aria-label", `Kill matrix. ${matrix.told.textContent} Arrow keys go from cell to cell.`);
}
function killAt(number, i, j) {
  const run = data.runs[number], matrix = matrices[number], cell = run.kills.cells[i]?.[j];
  if (!cell) return;
  matrix.at = [i, j];
  matrix.place(i, j);
  const name = ([from, to]) => (from === to ? `step ${from}` : `steps ${from} to ${to}`), [killed, pairs] = cell;
  matrix.told.textContent = `Suites of ${name(run.kills.bins[i])}, programs of ${name(run.kills.bins[j])}: ` +
    (pairs ? `${figure(killed / pairs)} killed (${killed} of ${many(pairs, "pair")}${i === j ? "" : ", as far as stored"})` : "nothing of it is stored");
}

// ------------------------------------------------------------------ league
const LEAGUE = {
  kills: "Wrong programs of the column's generator that a suite of the row's discriminator finds",
  survival: "Programs of the row's generator that every suite of the column's discriminator lets pass",
  scores: "Games won by the row against the column, a draw counted half",
};
function league() {
  const there = data.runs.some((run) => run.league.ratings);
  $("#league").hidden = $('nav a[href="#league"]').hidden = !there;
  $("#league .body").replaceChildren(...data.runs.map((run, number) => {
    const { members, ratings } = run.league;
    if (!ratings) return "";
    return el("div", { class: "card" }, several() && el("h3", {}, mark(number), run.name), rated(ratings),
      Object.entries(LEAGUE).filter(([key]) => run.league[key]).map(([key, told]) => [el("h4", {}, told), el("div", { class: "scroll" },
        el("table", { class: "dots" }, el("tr", {}, el("th", {}), members.map((name) => el("th", { class: "n" }, name))),
          run.league[key].map((row, i) => el("tr", {}, el("th", {}, members[i]), row.map((value) => {
            const cell = el("td", { class: "n" }, figure(value));
            if (value !== null) cell.style.background = heatColour(value * 0.7);
            return cell;
          })))))]));
  }));
}
function rated(ratings) {
  const low = Math.min(...ratings.map((r) => r.low)), span = Math.max(...ratings.map((r) => r.high)) - low || 1;
  const width = 260, x = (points) => 4 + ((points - low) / span) * (width - 8);
  return el("div", { class: "scroll" }, el("table", { class: "dots" }, el("tr", {}, el("th", {}, "policy"), el("th", {}, "checkpoint"), el("th", { class: "n" }, "points"), el("th", { class: "n" }, "95%"), el("th", {})),
    ratings.map((r) => el("tr", {}, el("th", {}, r.policy), el("td", {}, r.member), el("td", { class: "n" }, String(Math.round(r.points))), el("td", { class: "n" }, `${Math.round(r.low)} to ${Math.round(r.high)}`),
      el("td", {}, svg("svg", { width, height: 12, "aria-hidden": "true" }, svg("line", { class: "axis", x1: x(r.low), x2: x(r.high), y1: 6, y2: 6 }), svg("circle", { cx: x(r.points), cy: 6, r: 3.5, fill: "var(--ink)" })))))));
}

// ------------------------------------------------------------------ episodes
async function unpack(text) {
  if (!window.DecompressionStream) throw new Error("this browser cannot unpack the episodes (no DecompressionStream): use a newer one");
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}
const GOOD = new Set(["PASSED", "valid"]);
const SOFT = new Set(["TIME_LIMIT", "MEMORY_LIMIT", "OUTPUT_LIMIT", "UNSUPPORTED", "duplicate", "repeat", "silent"]);
const chip = (text, status) => el("span", { class: `pill ${GOOD.has(status) ? "good" : SOFT.has(status) ? "warn" : "bad"}` }, text);

class Browser {
  constructor(number) {
    Object.assign(this, { number, episodes: [], loaded: null, asked: 0, shown: [], selected: null, turn: "last", asks: false, problem: "" });
    const control = (text, node) => el("label", {}, text, node);
    this.steps = el("select", { "aria-label": "Step", onchange: () => this.go(Number(this.steps.value)) });
    this.before = el("button", { type: "button", "aria-label": "Step before", onclick: () => this.hop(-1) }, "‹");
    this.after = el("button", { type: "button", "aria-label": "Step after", onclick: () => this.hop(1) }, "›");
    this.problems = el("select", { onchange: () => this.chooseProblem(this.problems.value) });
    this.player = el("select", { onchange: () => this.list() });
    this.order = el("select", { onchange: () => this.list() }, el("option", { value: "played" }, "as played"), el("option", { value: "worst" }, "worst first"), el("option", { value: "best" }, "best first"));
    this.filter = el("input", { type: "search", placeholder: "text, test or verdict", "aria-label": "Filter attempts", oninput: () => this.list() });
    this.options = el("div", { class: "list", role: "listbox", tabindex: 0, "aria-label": "Attempts", onkeydown: (event) => this.key(event) });
    this.detail = el("div", { class: "detail" });
    this.node = el("div", { class: "card browser" }, el("div", { class: "head" }, several() && mark(number), control("step", this.steps), this.before, this.after,
      control("problem", this.problems), control("player", this.player), control("order", this.order), el("span", { class: "grow" }, this.filter)), el("div", { class: "split" }, this.options, this.detail));
  }
  get run() { return data.runs[this.number]; }
  get played() { return this.run.index.filter((entry) => !this.problem || entry.problems.some((p) => p.problem === this.problem)).map((entry) => entry.step); }
  update() {
    const run = this.run, players = [...new Set(run.index.flatMap((entry) => entry.problems.flatMap((p) => Object.keys(p.rewards))))];
    const options = (node, wanted, first) => {
      const values = first === null ? wanted : ["", ...wanted];
      if (node.options.length === values.length) return;
      const before = node.value;
      node.replaceChildren(...values.map((value) => el("option", { value }, value === "" ? first : String(value))));
      if (values.map(String).includes(before)) node.value = before;
    };
    options(this.steps, this.played, null);
    options(this.player, players, "all");
    options(this.problems, [...new Set(run.index.flatMap((entry) => entry.problems.map((p) => p.problem)))].sort(), `all`);
    this.problems.value = this.problem;
    if (!this.played.length) {
      this.options.replaceChildren(el("p", { class: "empty" }, "No attempts are stored (episodes.jsonl is not there or empty)."));
      this.detail.replaceChildren();
      return;
    }
    const step = this.played.includes(this.loaded?.step) ? this.loaded.step : this.wanted?.step && this.played.includes(this.wanted.step) ? this.wanted.step : this.played.at(-1);
    this.go(step);
  }
  chooseProblem(problem) {
    this.problem = problem;
    const step = this.loaded?.step ?? 0;
    this.steps.replaceChildren(...this.played.map((s) => el("option", { value: s }, String(s))));
    if (this.played.length) this.go(this.played.reduce((best, s) => (Math.abs(s - step) < Math.abs(best - step) ? s : best)));
  }
  hop(by) {
    const at = this.played.indexOf(this.loaded?.step) + by;
    if (this.played[at] !== undefined) this.go(this.played[at]);
  }
  async go(step) {
    const text = packed[`run-${this.number}-step-${step}`], asked = ++this.asked;
    this.steps.value = String(step);
    this.before.disabled = this.played.indexOf(step) === 0;
    this.after.disabled = this.played.at(-1) === step;
    if (this.loaded?.step === step && this.loaded.text === text && this.loaded.problem === this.problem) return;
    try {
      const episodes = await unpack(text);
      if (asked !== this.asked) return;
      this.episodes = episodes;
      this.loaded = { step, text, problem: this.problem };
      this.list();
    } catch (error) {
      this.options.replaceChildren(el("p", { class: "empty" }, String(error.message ?? error)));
    }
  }
  idOf(row, at) { return `${at}/${row.player}/${row.attempt}`; }
  list() {
    const words_ = this.filter.value.trim().toLowerCase();
    const matches = (row) => (!this.player.value || row.player === this.player.value) && (!words_ || JSON.stringify([row.problem, row.artifact, row.texts ?? "", row.why, row.outcomes]).toLowerCase().includes(JSON.stringify(words_).slice(1, -1)));
    const groups = this.episodes.map((episode, at) => ({ at, episode, rows: episode.filter(matches) })).filter((g) => g.rows.length && (!this.problem || g.episode[0].problem === this.problem));
    const worth = (row) => row.reward ?? (this.order.value === "best" ? -Infinity : Infinity);
    const sign = this.order.value === "best" ? -1 : 1;
    let entries = groups.flatMap((g) => g.rows.map((row) => ({ row, at: g.at, id: this.idOf(row, g.at) })));
    if (this.order.value !== "played") entries = entries.sort((a, b) => sign * (worth(a.row) - worth(b.row)));
    this.shown = entries;
    const children = [];
    let group = null;
    entries.forEach(({ row, at, id }, index) => {
      if (this.order.value === "played" && at !== group) {
        group = at;
        children.push(el("div", { class: "group", role: "presentation" }, row.problem, el("span", {}, many(this.episodes[at].length, "attempt"))));
      }
      const option = el("div", { class: `option c-${row.player}`, role: "option", id: `o-${this.number}-${index}`, "aria-selected": "false", onclick: () => this.choose(index) },
        el("i", {}), el("span", {}, `${row.player} #${row.attempt}`, this.order.value !== "played" && ` · ${row.problem}`), el("b", {}, row.reward === null ? "not judged" : figure(row.reward)));
      option.style.color = colourOf(row.player, this.run.players.indexOf(row.player));
      children.push(option);
    });
    this.options.replaceChildren(...(children.length ? children : [el("p", { class: "empty" }, "No attempt of this step matches.")]));
    const wanted = this.wanted?.step === this.loaded?.step ? this.wanted.id : null;
    this.wanted = null;
    const keep = this.shown.findIndex((entry) => entry.id === (wanted ?? this.selected));
    this.choose(Math.max(0, keep), false);
  }
  choose(index, scroll = true) {
    const entry = this.shown[index];
    for (const old of this.options.querySelectorAll("[aria-selected=true]")) old.setAttribute("aria-selected", "false");
    if (!entry) { this.options.removeAttribute("aria-activedescendant"); this.detail.replaceChildren(); return; }
    this.at = index;
    this.selected = entry.id;
    const option = $(`#o-${this.number}-${index}`);
    option.setAttribute("aria-selected", "true");
    this.options.setAttribute("aria-activedescendant", option.id);
    if (scroll) {
      const list = this.options, top = option.offsetTop - list.offsetTop;
      if (top < list.scrollTop + 30) list.scrollTop = top - 30;
      else if (top + option.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top + option.offsetHeight - list.clientHeight;
    }
    this.draw(entry.row, this.episodes[entry.at], entry.at);
    remember();
  }
  find(at, player, attempt) {
    const id = `${at}/${player}/${attempt}`;
    let index = this.shown.findIndex((entry) => entry.id === id);
    if (index < 0) { // a filter hides it
      this.filter.value = "";
      this.player.value = "";
      this.selected = id;
      this.list();
      index = this.shown.findIndex((entry) => entry.id === id);
    }
    this.choose(index);
  }
  key(event) {
    const to = { ArrowDown: this.at + 1, ArrowUp: this.at - 1, Home: 0, End: this.shown.length - 1, PageDown: this.at + 10, PageUp: this.at - 10 }[event.key];
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    this.choose(Math.min(this.shown.length - 1, Math.max(0, to)));
    event.preventDefault();
  }
  draw(row, episode, at) {
    const stage = row.stage ? ` · stage ${row.stage}` : "", tokens = (row.tokens ?? []).reduce((a, b) => a + b, 0);
    const link = (player, attempt) => el("button", { type: "button", class: "link", "aria-label": `${player} #${attempt}`, onclick: () => this.find(at, player, attempt) }, `#${attempt}`);
    this.detail.replaceChildren(...[
      el("header", {}, el("h3", {}, el("span", { class: `c-${row.player}` }, `${row.player} #${row.attempt}`), ` at ${row.problem}`)),
      el("p", { class: "meta" }, `step ${row.step}${stage} · ${row.phase} · policy ${row.policy}, version ${row.version} · ${many(tokens, "token")} in ${many((row.tokens ?? []).length, "turn")}` +
        (row.group ? ` · group ${row.group}` : "") + (row.place ? ` · prefix ${row.place[0]}, branch ${row.place[1]}` : "")),
      el("div", { class: "earned" }, el("strong", {}, row.reward === null ? "not judged" : figure(row.reward)), el("span", {}, row.why && (row.reward === null ? row.why : `= ${row.why}`))),
      el("div", { class: "parts" }, Object.entries(row.components).map(([name, value]) => el("div", { class: value === 0 ? "zero" : null }, el("span", {}, words(name)), el("b", {}, figure(value))))),
      this.said(row),
      row.outcomes.length > 0 && [el("h4", {}, row.suite ? "What became of each test" : "What each test did"), el("div", { class: "scroll" }, this.outcomes(row, episode, link))],
      this.grid(row, episode, link),
    ].flat().filter(Boolean));
  }
  said(row) {
    const artifact = row.artifact ?? "", texts = row.texts ?? [], turns = (row.tokens ?? []).length;
    const named = (i) => (row.stages && this.run.stages[row.stages[i]] ? `${row.stages[i]} ${this.run.stages[row.stages[i]]}` : texts.length > 1 ? `turn ${i + 1}` : "answer");
    const views = texts.map((text, i) => ({ name: named(i), text, asked: row.prompts?.[i], tokens: row.tokens?.[i], cut: row.finish?.[i] === "length" }));
    const kind = row.suite ? "tests as written" : row.outcomes.length ? "program" : "all of it";
    if (!texts.length || texts.at(-1).trim() !== artifact.trim()) views.push({ name: kind, text: artifact, asked: turns === 1 ? row.prompts?.[0] : null, tokens: turns === 1 ? row.tokens[0] : null, cut: turns === 1 && row.finish?.[0] === "length" });
    const text = (view) => view.text.trimEnd() || "(empty)";
    const foot = (view) => [view.tokens ? many(view.tokens, "token") : "", view.cut ? "cut off by its length limit" : ""].filter(Boolean).join(" · ");
    const prompt = el("pre", { tabindex: 0 });
    const asked = el("details", { class: "asked", ontoggle: () => { this.asks = asked.open; } }, el("summary", {}, "what it was asked"), prompt);
    asked.open = this.asks;
    const ask = (view) => { prompt.textContent = view.asked?.trimEnd() ?? ""; asked.hidden = !prompt.textContent; };
    if (views.length === 1) ask(views[0]);
    if (views.length === 1) return [asked, el("pre", { class: "said all", tabindex: 0 }, text(views[0])),
      turns > 1 && el("p", { class: "note" }, `What it said in its other turns is not stored in this run, which an earlier version wrote; samples/ has some.`)];
    const chosen = this.turn === "last" ? views.length - 1 : Math.min(this.turn, views.length - 1), id = `turn-${this.number}`;
    const panel = el("pre", { class: "said", role: "tabpanel", id: `${id}-panel`, tabindex: 0 }), note = el("p", { class: "meta" });
    const tabs = views.map((view, i) => el("button", { type: "button", role: "tab", id: `${id}-${i}`, "aria-controls": `${id}-panel`, onclick: () => pick(i) }, view.name, view.cut && " ✂"));
    const pick = (i) => {
      this.turn = i === views.length - 1 ? "last" : i;
      tabs.forEach((tab, n) => { tab.setAttribute("aria-selected", String(n === i)); tab.tabIndex = n === i ? 0 : -1; });
      panel.setAttribute("aria-labelledby", `${id}-${i}`);
      panel.textContent = text(views[i]);
      note.textContent = foot(views[i]);
      ask(views[i]);
      remember();
    };
    this.pickTurn = (i) => { if (tabs[i]) pick(i); };
    const list = el("div", { class: "tabs", role: "tablist", "aria-label": "Turns", onkeydown: (event) => {
      const now = tabs.indexOf(event.target), to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (now < 0 || to === undefined) return;
      const next = (to + tabs.length) % tabs.length;
      pick(next);
      tabs[next].focus();
      event.preventDefault();
    } }, tabs);
    pick(chosen);
    return [list, panel, note, asked];
  }
  outcomes(row, episode, link) {
    const programs = episode.find((other) => !other.suite && other.outcomes.length)?.player ?? "generator";
    const by = (owner) => {
      const parts = /^(\w+)((?: #\d+)+)$/.exec(owner ?? "");
      return parts ? [parts[1], " ", parts[2].trim().split(" ").map((n) => link(parts[1], n.slice(1)))] : owner ?? "";
    };
    return el("table", { class: "tests" }, el("thead", {}, el("tr", {}, el("th", {}, "test"), el("th", {}, row.suite ? "became" : "verdict"), el("th", {}, row.suite ? "fails programs" : "by"))),
      el("tbody", {}, row.outcomes.map((outcome) => el("tr", { class: outcome.counts === false ? "out" : null }, el("td", {}, outcome.test),
        el("td", {}, chip(data.became[outcome.status] ?? outcome.status, outcome.status), outcome.counts === false && " does not count", outcome.error && el("div", { class: "meta" }, outcome.error)),
        el("td", {}, row.suite ? (outcome.kills ?? []).map((n) => link(programs, n)) : by(outcome.owner))))));
  }
  // Every program of the episode on every test that it met.
  grid(row, episode, link) {
    const programs = episode.filter((other) => !other.suite && other.outcomes.length);
    const tests = [...new Set(programs.flatMap((p) => p.outcomes.map((o) => o.test)))].slice(0, 60);
    if (programs.length < 2 || !tests.length) return null;
    const name = (test) => tests.indexOf(test) + 1;
    return [el("h4", {}, `All programs of this episode on its tests (${many(tests.length, "test")})`), el("div", { class: "scroll" }, el("table", { class: "dots" },
      el("tr", {}, el("th", {}), tests.map((test) => el("th", { title: test }, String(name(test)))), el("th", {}, "reward")),
      programs.map((program) => {
        const did = Object.fromEntries(program.outcomes.map((o) => [o.test, o]));
        const button = link(program.player, program.attempt);
        button.prepend(`${program.player} `);
        if (program === row) button.classList.add("sel");
        return el("tr", {}, el("th", {}, button), tests.map((test) => {
          const o = did[test], state = !o || o.counts === false ? "" : o.status === "PASSED" ? "good" : "bad";
          return el("td", {}, el("span", { class: `dot ${state}`, role: "img", title: `${test}: ${o ? o.status : "not met"}`, "aria-label": `test ${name(test)} ${o ? o.status : "not met"}` }));
        }), el("td", { class: "n" }, figure(program.reward)));
      })))];
  }
}
const browsers = [];
function episodes() {
  if (browsers.length !== data.runs.length) {
    browsers.length = 0;
    data.runs.forEach((_, number) => browsers.push(new Browser(number)));
    const place = recalled();
    browsers.forEach((browser, number) => {
      const [step, id, turn] = place[number] ?? [];
      if (step !== undefined) { browser.wanted = { step, id }; browser.turn = turn ?? "last"; }
    });
    $("#episodes .body").replaceChildren(el("div", { class: "side" }, browsers.map((browser, number) => el("div", {}, several() && el("h3", {}, mark(number), data.runs[number].name), browser.node))));
  }
  for (const browser of browsers) browser.update();
}
// Of every run that has it, so that the same step stands side by side.
function openStep(number, step) {
  if (step === null) return;
  for (const browser of browsers) {
    if (!browser.run.index.some((entry) => entry.step === step)) continue;
    if (browser.problem) browser.chooseProblem("");
    browser.problems.value = "";
    browser.go(step);
  }
  jump("episodes");
  browsers[number].options.focus({ preventScroll: true });
}

// ------------------------------------------------------------------ the reader's place
let ready = false;
function remember() {
  if (!ready) return;
  const place = browsers.map((b) => (b.loaded ? [b.loaded.step, b.selected, b.turn] : null));
  history.replaceState(null, "", "#at=" + encodeURIComponent(JSON.stringify(place)));
}
function recalled() {
  try {
    const place = JSON.parse(decodeURIComponent(location.hash.startsWith("#at=") ? location.hash.slice(4) : "[]"));
    return Array.isArray(place) ? place : [];
  } catch { return []; }
}
function jump(id) {
  const section = document.getElementById(id);
  section.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}
for (const link of document.querySelectorAll(".bar nav a, .skip"))
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const id = link.getAttribute("href").slice(1);
    jump(id);
    if (link.classList.contains("skip")) browsers[0]?.options.focus();
  });
const spy = new IntersectionObserver((seen) => {
  for (const entry of seen)
    $(`.bar nav a[href="#${entry.target.id}"]`).classList.toggle("here", entry.isIntersecting);
}, { rootMargin: "-35% 0px -60% 0px" });
for (const section of document.querySelectorAll("main section")) spy.observe(section);

// ------------------------------------------------------------------ keys, colours
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || $("#keys").open) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) { if (event.key === "Escape") event.target.blur(); return; }
  const browser = browsers.find((b) => b.node.contains(document.activeElement)) ?? browsers[0];
  const choose = (by) => browser.choose(Math.min(browser.shown.length - 1, Math.max(0, browser.at + by)));
  const acts = {
    "[": () => browser.hop(-1), "]": () => browser.hop(1), j: () => choose(1), k: () => choose(-1),
    e: () => { jump("episodes"); browser.options.focus({ preventScroll: true }); }, "/": () => browser.filter.focus(), t: nextTheme, "?": () => $("#keys").showModal(),
  };
  if (acts[event.key]) { acts[event.key](); event.preventDefault(); }
  else if (/^[1-9]$/.test(event.key)) browser.pickTurn?.(Number(event.key) - 1);
});
$("#help").addEventListener("click", () => $("#keys").showModal());
const THEMES = ["system", "dark", "light"];
const kept = { get: () => { try { return localStorage.getItem("sparring-theme"); } catch { return null; } }, set: (v) => { try { localStorage.setItem("sparring-theme", v); } catch { /* not kept */ } } };
let theme = THEMES.includes(kept.get()) ? kept.get() : "system";
function paint() {
  document.documentElement.className = theme === "system" ? "" : theme;
  $("#theme").textContent = { system: "◐ system", dark: "● dark", light: "○ light" }[theme];
}
function nextTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % 3];
  kept.set(theme);
  paint();
}
$("#theme").addEventListener("click", nextTheme);
paint();

// ------------------------------------------------------------------ following
function live() {
  const node = $("#live");
  node.hidden = !data.live;
  const steps = data.runs.map((run) => `${lastStep(run)}${run.total ? "/" + run.total : ""}`).join(", ");
  node.textContent = `following · step ${steps} · ${new Date(data.written * 1000).toLocaleTimeString("en-GB")}`;
}
let frame = null;
function probe() {
  if (!data.live) return;
  if (!document.hidden) {
    frame?.remove();
    frame = el("iframe", { class: "probe", sandbox: "allow-scripts", "aria-hidden": "true", tabindex: -1, title: "newer state", src: `${location.href.split(/[?#]/)[0]}?t=${Date.now()}#probe` });
    document.body.append(frame);
  }
  setTimeout(probe, 4000);
}
window.addEventListener("message", (event) => {
  if (!frame || event.source !== frame.contentWindow || !event.data?.sparring) return;
  const newer = JSON.parse(event.data.sparring.data);
  frame.remove();
  frame = null;
  if (newer.written <= data.written || newer.runs.length !== data.runs.length) return;
  packed = event.data.sparring;
  data = newer;
  inPlace(draw);
});
// What the reader looks at stays where it is, whatever grows above it.
function inPlace(change) {
  const seen = [];
  for (let node = document.elementFromPoint(innerWidth / 2, innerHeight / 3); node; node = node.parentElement) seen.push([node, node.getBoundingClientRect().top]);
  change();
  const [node, top] = seen.find(([node]) => node.isConnected);
  scrollBy(0, node.getBoundingClientRect().top - top);
}

function draw() {
  overview();
  timeline();
  curves();
  components();
  kills();
  league();
  episodes();
  live();
}
let waiting = 0, width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => { timeline(); for (const chart of [...charts, picked]) chart.draw(); kills(); });
});
draw();
ready = true;
setTimeout(probe, 4000);
})();
