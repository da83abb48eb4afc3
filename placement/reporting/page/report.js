// The graph of a placement, drawn as SVG from positions that Python computed, and the list of all
// operations. Colours, letters and tables identify devices; texts are texts, never markup.

const COLOURS = 6; // as many as the style has for devices
const STEP = { x: 136, y: 46 }; // between layers, and between neighbours in a layer
const NODE = { width: 104, height: 30 };
const LARGEST_SCALE = 3;
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
/** Identifies a device where colours do not. */
const letter = (device) => String.fromCharCode(65 + device);
/** A device's colour with its letter, as in the graph. */
const key = (device) => element("b", { class: `key d${device % COLOURS}` }, letter(device));

/** Scales the drawing, which its frame scrolls; returns a function that shows a point. */
function zoomable(svg, frame, bounds) {
  let scale = 0; // screen pixels for each unit of the drawing
  svg.setAttribute("viewBox", [bounds.x, bounds.y, bounds.width, bounds.height].join(" "));

  function show(x, y, wanted) {
    const [width, height] = [frame.clientWidth, frame.clientHeight];
    const smallest = Math.min(width / bounds.width, height / bounds.height, 1);
    scale = Math.min(Math.max(wanted, smallest), LARGEST_SCALE);
    svg.setAttribute("width", bounds.width * scale);
    svg.setAttribute("height", bounds.height * scale);
    svg.classList.toggle("far", scale < LEGIBLE_SCALE);
    frame.scrollTo((x - bounds.x) * scale - width / 2, (y - bounds.y) * scale - height / 2);
  }

  /** Zooms; the point in the middle of the frame stays there. */
  function zoom(factor) {
    const x = bounds.x + (frame.scrollLeft + frame.clientWidth / 2) / scale;
    const y = bounds.y + (frame.scrollTop + frame.clientHeight / 2) / scale;
    show(x, y, scale * factor);
  }

  byId("zoom-in").addEventListener("click", () => zoom(1.3));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 1.3));
  byId("fit").addEventListener("click", () => zoom(0));
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
  });
  // No higher than a wide drawing needs.
  const height = Math.max(4 * STEP.y, (frame.clientWidth / bounds.width) * bounds.height);
  frame.style.height = `${Math.min(height, frame.clientHeight)}px`;
  show(bounds.x, bounds.y, 0);
  return (x, y) => show(x, y, Math.max(scale, 0.8));
}

/** Draws nodes and edges; `chosen` is called with a node that is clicked. */
function drawGraph(data, chosen) {
  const { nodes, edges } = data;
  const svg = byId("drawing");
  const shapes = nodes.name.map((name, node) => {
    const device = nodes.device[node];
    const text = `${letter(device)} ${nodes.type[node]}`;
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
  const show = zoomable(svg, byId("frame"), { x, y, width, height });

  function mark(node) {
    svg.querySelector(".marked")?.classList.remove("marked");
    shapes[node].classList.add("marked");
    const touches = (edge) => edges.senders[edge] === node || edges.receivers[edge] === node;
    touched.setAttribute("d", routes(touches));
    byId("about").replaceChildren(...describe(data, node));
  }

  svg.addEventListener("click", (event) => {
    const node = shapes.indexOf(event.target.closest(".node"));
    if (node < 0) return;
    mark(node);
    chosen(node);
  });
  svg.addEventListener("pointerover", (event) => {
    const node = shapes.indexOf(event.target.closest(".node"));
    if (node >= 0) byId("about").replaceChildren(...describe(data, node));
  });
  return (node) => {
    mark(node);
    show(nodes.x[node] * STEP.x, nodes.y[node] * STEP.y);
  };
}

/** A node's name, its time on each device, and when it runs. */
function describe(data, node) {
  const { nodes } = data;
  const row = (title, text) => element("tr", {}, element("th", {}, title), element("td", {}, text));
  const rows = data.devices.map((device, number) => {
    const time = nodes.times[number][node];
    const text = time === "-" ? "not supported" : `${time} ${data.costs}`;
    const mark = number === nodes.device[node] ? "✓ " : "";
    return row(`${mark}${letter(number)} ${device}`, text);
  });
  for (const kind of ["predicted", "measured"]) {
    if (!nodes[kind] || nodes[kind][0][node] === "-") continue;
    const [start, finish] = nodes[kind].map((times) => times[node]);
    rows.push(row(kind, `${start} to ${finish} ${data.clock}`));
  }
  const table = element("table", {}, element("tbody", {}, ...rows));
  return [element("strong", {}, nodes.name[node]), `, ${nodes.type[node]}`, table];
}

/** Fills the list; `picked` is called with a row's operation. Returns a function that lists a node. */
function listOperations(data, picked) {
  const { ops } = data;
  const nodeOf = (op) => data.nodeOf[ops.coarse[op]];
  const deviceOf = (op) => data.deviceOf[ops.coarse[op]];
  const haystack = ops.name.map((name, op) => `${name} ${ops.type[op]}`.toLowerCase());
  const columns = [
    ["name", (op) => element("button", { type: "button" }, ops.name[op])],
    ["type", (op) => ops.type[op]],
    ["shape", (op) => ops.shape[op]],
    ["device", (op) => key(deviceOf(op))],
    ...data.devices.map((_, device) => [
      `${letter(device)} ${data.costs}`,
      (op) => ops.times[device][op],
    ]),
    ["memory kB", (op) => ops.kilobytes[op]],
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
    byId("device").append(element("option", { value: number }, `${letter(number)} ${device}`));
  });
  let list = null;
  const show = drawGraph(data, (node) => list(node));
  list = listOperations(data, show);
}

if (byId("data")) start(JSON.parse(byId("data").textContent));
