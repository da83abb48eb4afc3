// The graph: what is drawn, how the view moves, and how an operation is shown.

const STEP = { x: 136, y: 46 }; // between layers, and between neighbours in a layer
const NODE = { width: 104, height: 30 };

/**
 * Draws the graph and keeps it.
 *
 * @param told What the page knows of the placement.
 * @param chosen Called with the node that is chosen; returns how many operations it has.
 * @returns What others may ask of the graph: `show(node)`.
 */
function drawing(told, chosen) {
  const svg = byId("drawing");
  const { nodes, edges } = told;
  const shapes = nodes.name.map((_, node) => drawNode(told, node));
  const lines = (kind, wanted) => svgElement("path", { class: kind, d: routes(edges, wanted) });
  const touched = svgElement("path", { class: "edge touched" });
  svg.append(
    lines("edge", (edge) => !edges.crossing[edge]),
    lines("edge crossing", (edge) => edges.crossing[edge]),
    touched,
    ...shapes,
  );
  const view = viewOf(svg, byId("frame"), boundsOf(nodes));
  const tip = tipOf(told, shapes);
  view.moved(tip.place);
  let current = 0; // the node in the tab order

  function reach(node) {
    shapes[current].tabIndex = -1;
    current = node;
    shapes[node].tabIndex = 0;
  }

  function mark(node) {
    for (const before of svg.querySelectorAll('[aria-pressed="true"]')) {
      before.setAttribute("aria-pressed", "false");
    }
    shapes[node].setAttribute("aria-pressed", "true");
    const touches = (edge) => edges.senders[edge] === node || edges.receivers[edge] === node;
    touched.setAttribute("d", routes(edges, touches));
    reach(node);
  }

  function choose(node) {
    mark(node);
    const count = chosen(node);
    const listed = count > 1 ? `its ${count} operations are listed below.` : "marked in the list.";
    const where = `${nodes.name[node]}, on ${told.devices[nodes.device[node]]}`;
    byId("chosen").textContent = `${where}: ${listed}`;
  }

  function go(node) {
    reach(node);
    view.include(nodes.x[node] * STEP.x, nodes.y[node] * STEP.y);
    shapes[node].focus({ preventScroll: true });
  }

  reach(0);
  svg.addEventListener("click", (event) => {
    const node = shapes.indexOf(event.target.closest(".node"));
    if (node >= 0 && !view.dragged()) choose(node);
  });
  const focused = () => shapes.indexOf(document.activeElement);
  const pressed = keysOf({ view, focused, choose, go, hide: tip.hide }, neighboursOf(nodes, edges));
  byId("frame").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (pressed(event.key, event.shiftKey)) event.preventDefault();
  });
  return {
    show(node) {
      mark(node);
      view.centre(nodes.x[node] * STEP.x, nodes.y[node] * STEP.y);
      byId("chosen").textContent = `In the graph: ${nodes.name[node]}.`;
    },
  };
}

/** What a key does; returns whether it does anything. */
function keysOf(graph, neighbours) {
  return (key, shift) => {
    const node = graph.focused();
    if (key === "Escape") graph.hide();
    else if (node < 0 || shift || !/^(Arrow|Enter| )/.test(key)) return graph.view.key(key);
    else if (key.startsWith("Arrow")) graph.go(neighbours(node, key) ?? node);
    else graph.choose(node);
    return true;
  };
}

function drawNode(told, node) {
  const { nodes } = told;
  const device = nodes.device[node];
  const group = svgElement("g", {
    class: `node d${device % COLOURS}`,
    transform: `translate(${nodes.x[node] * STEP.x} ${nodes.y[node] * STEP.y})`,
    role: "button",
    tabindex: -1,
    "aria-pressed": "false",
    "aria-label": `${nodes.name[node]}, ${kindOf(nodes, node)}, ${told.devices[device]}`,
    "aria-describedby": "tip",
  });
  const text = `${letters(device)} ${nodes.type[node] ?? `${nodes.count[node]} ops`}`;
  const most = 14;
  const shown = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  group.append(
    svgElement("path", { class: "shape", d: shape(device, NODE.width, NODE.height) }),
    svgElement("text", { y: 4 }, shown),
  );
  return group;
}

function kindOf(nodes, node) {
  if (nodes.type[node] === null) return "block";
  const more = nodes.count[node] > 1 ? `, ${plural(nodes.count[node], "operation")}` : "";
  return nodes.type[node] + more;
}

/** Some edges as one path, which is quicker to draw than a path each. */
const routes = ({ paths }, wanted) => paths.filter((_, edge) => wanted(edge)).map(route).join("");

function route(path) {
  const last = path.length - 2;
  const at = (i) => {
    const inset = i === 0 ? NODE.width / 2 : i === last ? -NODE.width / 2 : 0;
    return [path[i] * STEP.x + inset, path[i + 1] * STEP.y];
  };
  let [x, y] = at(0);
  let line = `M${x} ${y}`;
  for (let i = 2; i <= last; i += 2) {
    const [nextX, nextY] = at(i);
    const middle = (x + nextX) / 2;
    line += y === nextY ? `H${nextX}` : `C${middle} ${y} ${middle} ${nextY} ${nextX} ${nextY}`;
    [x, y] = [nextX, nextY];
  }
  return line;
}

function boundsOf(nodes) {
  const spread = (values, step, size) => {
    const [low, high] = [Math.min, Math.max].map((of) => values.reduce((a, b) => of(a, b)));
    return [low * step - size, (high - low) * step + 2 * size];
  };
  const [x, width] = spread(nodes.x, STEP.x, NODE.width * 0.75);
  const [y, height] = spread(nodes.y, STEP.y, NODE.height * 1.5);
  return { x, y, width, height };
}

/** Where an arrow key leads from a node: along an edge, else to the nearest in that direction. */
function neighboursOf(nodes, edges) {
  const layers = new Map();
  nodes.x.forEach((x, node) => {
    if (!layers.has(x)) layers.set(x, []);
    layers.get(x).push(node);
  });
  for (const layer of layers.values()) layer.sort((a, b) => nodes.y[a] - nodes.y[b]);
  const depths = [...layers.keys()].sort((a, b) => a - b);
  const nearest = (node, others) => {
    const distance = (other) => Math.abs(nodes.y[other] - nodes.y[node]);
    return others.reduce((a, b) => (distance(b) < distance(a) ? b : a), others[0]);
  };
  return (node, arrow) => {
    const layer = layers.get(nodes.x[node]);
    const step = arrow === "ArrowLeft" || arrow === "ArrowUp" ? -1 : 1;
    if (arrow === "ArrowUp" || arrow === "ArrowDown") return layer[layer.indexOf(node) + step];
    const [near, far] = step > 0 ? ["senders", "receivers"] : ["receivers", "senders"];
    const joined = edges[far].filter((_, edge) => edges[near][edge] === node);
    const beside = layers.get(depths[depths.indexOf(nodes.x[node]) + step]) ?? [];
    return nearest(node, joined.length ? joined : beside);
  };
}
