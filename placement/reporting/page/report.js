// The graph of a placement, drawn as SVG from positions that Python computed, and the list of all
// operations. Colours, letters and tables identify devices; texts are texts, never markup.

const COLOURS = 6; // as many as the style has for devices
const STEP = { x: 136, y: 46 }; // between layers, and between neighbours in a layer
const NODE = { width: 104, height: 30 };
const LARGEST_SCALE = 3; // screen pixels for each unit of the drawing
const LEGIBLE_SCALE = 0.55; // below it, nodes have no text
const ROWS = 200; // of the list, shown at once
const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "rect", "text"].includes(name);
  const made = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
const inUnit = (value, unit) => (value === null ? "-" : value.toFixed(unit.decimals));

/** A, B, ... Z, AA, AB, ...: identifies devices where colours do not. */
function letters(device) {
  const prefix = device < 26 ? "" : letters(Math.floor(device / 26) - 1);
  return prefix + String.fromCharCode(65 + (device % 26));
}

/** A device's colour with its letter, as in the graph. */
const key = (device) => element("b", { class: `key d${device % COLOURS}` }, letters(device));

/** Keeps the part of the drawing that is in view: `show(x, y)` centres a point. */
function viewOf(svg, frame, bounds) {
  const view = { x: 0, y: 0, scale: 0 }; // the centre, and screen pixels for each unit

  function draw(x, y, scale) {
    const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
    const [wide, high] = [frame.clientWidth, frame.clientHeight];
    const smallest = Math.min(wide / bounds.width, high / bounds.height, 1);
    view.scale = clamp(scale, smallest, LARGEST_SCALE);
    view.x = clamp(x, bounds.x, bounds.x + bounds.width);
    view.y = clamp(y, bounds.y, bounds.y + bounds.height);
    const [width, height] = [wide / view.scale, high / view.scale];
    svg.setAttribute("viewBox", [view.x - width / 2, view.y - height / 2, width, height].join(" "));
    svg.classList.toggle("far", view.scale < LEGIBLE_SCALE);
  }

  const fit = () => draw(bounds.x + bounds.width / 2, bounds.y + bounds.height / 2, 0);
  const pan = (x, y) => draw(view.x + x / view.scale, view.y + y / view.scale, view.scale);
  /** Zooms about a point, in screen pixels from the centre; the point stays where it is. */
  function zoom(factor, x = 0, y = 0) {
    const before = view.scale;
    draw(view.x, view.y, before * factor);
    const moved = 1 / before - 1 / view.scale;
    draw(view.x + x * moved, view.y + y * moved, view.scale);
  }

  const keys = {
    "+": () => zoom(1.3),
    "-": () => zoom(1 / 1.3),
    0: fit,
    ArrowLeft: () => pan(-60, 0),
    ArrowRight: () => pan(60, 0),
    ArrowUp: () => pan(0, -60),
    ArrowDown: () => pan(0, 60),
  };
  byId("zoom-in").addEventListener("click", keys["+"]);
  byId("zoom-out").addEventListener("click", keys["-"]);
  byId("fit").addEventListener("click", fit);
  frame.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = frame.getBoundingClientRect();
    const pixels = event.deltaY * [1, 16, 400][event.deltaMode];
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    zoom(Math.exp(-pixels * 0.002), x - box.width / 2, y - box.height / 2);
  });
  let dragged = 0; // pixels since the last press
  svg.addEventListener("pointerdown", () => (dragged = 0));
  svg.addEventListener("pointermove", (event) => {
    if (event.buttons !== 1) return;
    dragged += Math.hypot(event.movementX, event.movementY);
    if (dragged < 4) return;
    if (!svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
    pan(-event.movementX, -event.movementY);
  });
  fit();
  new ResizeObserver(() => draw(view.x, view.y, view.scale)).observe(frame);
  return { show: (x, y) => draw(x, y, Math.max(view.scale, 0.8)), isDrag: () => dragged >= 4 };
}

/** Draws nodes and edges; `chosen` is called with a node that is clicked. */
function drawGraph(data, chosen) {
  const { nodes, edges } = data;
  const svg = byId("drawing");
  const shapes = nodes.name.map((name, node) => {
    const device = nodes.device[node];
    const kind = nodes.type[node] ?? `${nodes.count[node]} ops`;
    const text = `${letters(device)} ${kind}`;
    const position = `translate(${nodes.x[node] * STEP.x} ${nodes.y[node] * STEP.y})`;
    const { width, height } = NODE;
    return element(
      "g",
      { class: `node d${device % COLOURS}`, transform: position, "data-name": name },
      element("rect", { x: -width / 2, y: -height / 2, rx: 4, width, height }),
      element("text", { y: 4 }, text.length > 14 ? `${text.slice(0, 13)}…` : text),
    );
  });
  // Some edges as one path, which is quicker to draw than one path for each edge.
  const routes = (wanted) =>
    edges.paths
      .filter((_, edge) => wanted(edge))
      .map((path) => {
        const points = path.map((value, i) => value * (i % 2 ? STEP.y : STEP.x));
        points[0] += NODE.width / 2;
        points[points.length - 2] -= NODE.width / 2;
        let line = `M${points[0]} ${points[1]}`;
        for (let i = 2; i < points.length; i += 2) {
          const middle = (points[i - 2] + points[i]) / 2;
          line += `C${middle} ${points[i - 1]} ${middle} ${points[i + 1]}`;
          line += ` ${points[i]} ${points[i + 1]}`;
        }
        return line;
      })
      .join("");
  const touched = element("path", { class: "edge touched" });
  svg.append(
    element("path", { class: "edge", d: routes((edge) => !edges.crossing[edge]) }),
    element("path", { class: "edge crossing", d: routes((edge) => edges.crossing[edge]) }),
    touched,
    ...shapes,
  );
  const range = (values, step, size) => {
    const [low, high] = [Math.min, Math.max].map((of) => values.reduce((a, b) => of(a, b)));
    return [low * step - size, (high - low) * step + 2 * size];
  };
  const [x, width] = range(nodes.x, STEP.x, NODE.width);
  const [y, height] = range(nodes.y, STEP.y, 2 * NODE.height);
  const view = viewOf(svg, byId("frame"), { x, y, width, height });

  function mark(node) {
    svg.querySelector(".marked")?.classList.remove("marked");
    shapes[node].classList.add("marked");
    const touches = (edge) => edges.senders[edge] === node || edges.receivers[edge] === node;
    touched.setAttribute("d", routes(touches));
    byId("about").replaceChildren(...describe(data, node));
  }

  svg.addEventListener("click", (event) => {
    const node = shapes.indexOf(event.target.closest(".node"));
    if (node < 0 || view.isDrag()) return;
    mark(node);
    chosen(node);
  });
  svg.addEventListener("pointerover", (event) => {
    const node = shapes.indexOf(event.target.closest(".node"));
    if (node >= 0) byId("about").replaceChildren(...describe(data, node));
  });
  return (node) => {
    mark(node);
    view.show(nodes.x[node] * STEP.x, nodes.y[node] * STEP.y);
  };
}

/** A node's name, its time on each device, and when it runs. */
function describe(data, node) {
  const { nodes, costs, clock } = data;
  const row = (title, text) => element("tr", {}, element("th", {}, title), element("td", {}, text));
  const rows = data.devices.map((device, number) => {
    const seconds = nodes.seconds[number][node];
    const text = seconds === null ? "not supported" : `${inUnit(seconds, costs)} ${costs.name}`;
    const mark = number === nodes.device[node] ? "✓ " : "";
    return row(`${mark}${letters(number)} ${device}`, text);
  });
  for (const kind of ["predicted", "measured"]) {
    if (!nodes[kind] || nodes[kind][0][node] === null) continue;
    const [start, finish] = nodes[kind].map((times) => inUnit(times[node], clock));
    rows.push(row(kind, `${start} to ${finish} ${clock.name}`));
  }
  const type = nodes.type[node] ?? plural(nodes.count[node], "operation");
  const table = element("table", {}, element("tbody", {}, ...rows));
  return [element("strong", {}, nodes.name[node]), `, ${type}`, table];
}

/** Fills the list; `picked` is called with a row's operation. Returns a function that lists a node. */
function listOperations(data, picked) {
  const { ops, costs } = data;
  const nodeOf = (op) => data.nodeOf[ops.coarse[op]];
  const deviceOf = (op) => data.deviceOf[ops.coarse[op]];
  const haystack = ops.name.map((name, op) => `${name} ${data.types[ops.type[op]]}`.toLowerCase());
  const columns = [
    ["name", (op) => element("button", { type: "button" }, ops.name[op])],
    ["type", (op) => data.types[ops.type[op]]],
    ["shape", (op) => data.shapes[ops.shape[op]]],
    ["device", (op) => key(deviceOf(op))],
    ...data.devices.map((_, device) => [
      `${letters(device)} ${costs.name}`,
      (op) => inUnit(ops.seconds[device][op], costs),
    ]),
    ["memory kB", (op) => (ops.bytes[op] / 1000).toFixed(1)],
  ];
  if (data.coarse) columns.push(["coarse operation", (op) => data.coarse[ops.coarse[op]]]);
  let [matches, shown, members] = [[], 0, null];

  function more() {
    const rows = matches.slice(shown, shown + ROWS).map((op) => {
      const cells = columns.map(([, cell]) => element("td", {}, cell(op)));
      return element("tr", { "data-op": op }, ...cells);
    });
    byId("list").tBodies[0].append(...rows);
    shown += rows.length;
    byId("more").hidden = shown === matches.length;
  }

  function filter() {
    const words = byId("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const device = byId("device").value;
    matches = [...haystack.keys()].filter(
      (op) =>
        (device === "" || deviceOf(op) === Number(device)) &&
        (members === null || nodeOf(op) === members) &&
        words.every((word) => haystack[op].includes(word)),
    );
    shown = 0;
    byId("list").tBodies[0].replaceChildren();
    byId("members").hidden = members === null;
    byId("members").textContent = members === null ? "" : `only in ${data.nodes.name[members]} ✕`;
    const of = matches.length === haystack.length ? "" : ` of ${haystack.length}`;
    byId("count").textContent = plural(matches.length, "operation") + of;
    more();
  }

  const header = columns.map(([title]) => element("th", { scope: "col" }, title));
  byId("list").tHead.append(element("tr", {}, ...header));
  byId("words").addEventListener("input", filter);
  byId("device").addEventListener("change", filter);
  byId("more").addEventListener("click", more);
  byId("words").form.addEventListener("submit", (event) => event.preventDefault());
  byId("members").addEventListener("click", () => {
    members = null;
    filter();
  });
  byId("list").tBodies[0].addEventListener("click", (event) => {
    picked(nodeOf(Number(event.target.closest("tr").dataset.op)));
  });
  filter();
  return (node) => {
    members = node;
    byId("words").value = byId("device").value = "";
    filter();
  };
}

function start(data) {
  const drawn = plural(data.nodes.name.length, data.blocks ? "block" : "coarse operation");
  const all = data.nodes.name.length === data.ops.name.length;
  const count = plural(data.ops.name.length, "operation");
  const what = all ? `All ${count} are drawn.` : `${count} are drawn as ${drawn}.`;
  const crossings = plural(data.crossings, "tensor");
  byId("drawn").textContent =
    `Data flows from left to right. ${what} Bold lines lead to another device (${crossings}). ` +
    `Times: ${data.how.join("; ")}.`;
  const counts = data.devices.map(() => 0);
  for (const coarse of data.ops.coarse) counts[data.deviceOf[coarse]] += 1;
  data.devices.forEach((device, number) => {
    const text = ` ${device}: ${plural(counts[number], "operation")}`;
    byId("legend").append(element("li", {}, key(number), text));
    byId("device").append(element("option", { value: number }, `${letters(number)} ${device}`));
  });
  let list = null;
  const show = drawGraph(data, (node) => list(node));
  list = listOperations(data, show);
}

if (byId("data")) start(JSON.parse(byId("data").textContent));
