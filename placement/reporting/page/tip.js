// What a node says of itself while the pointer is on it or it has the focus.

/**
 * Shows a node's costs and times, of one node at a time.
 *
 * @param told What the page knows of the placement.
 * @param shapes The nodes as they are drawn.
 * @returns `hide()`, and `place()` for when the view has moved.
 */
function tipOf(told, shapes) {
  const tip = byId("tip");
  const svg = byId("drawing");
  let at = null;

  /** At the edge of the view that is farther from the node, so as not to cover what is near it. */
  function place() {
    if (at === null) return;
    const viewer = tip.parentElement.getBoundingClientRect();
    const box = shapes[at].firstChild.getBoundingClientRect();
    const middle = (box.left + box.right) / 2 - viewer.left - tip.offsetWidth / 2;
    const most = viewer.width - tip.offsetWidth - 8;
    const lowest = viewer.height - tip.offsetHeight - 8;
    const high = (box.top + box.bottom) / 2 > (viewer.top + viewer.bottom) / 2;
    tip.style.left = `${Math.max(Math.min(middle, most), 8)}px`;
    tip.style.top = `${high ? 8 : Math.max(lowest, 8)}px`;
  }

  function show(node) {
    if (node === at) return;
    at = node;
    tip.replaceChildren(...tipContent(told, node));
    tip.hidden = false;
    place();
  }

  function hide() {
    at = null;
    tip.hidden = true;
  }

  /** Without the pointer, the node that has the focus is shown, if one has. */
  function restore() {
    const focused = shapes.indexOf(document.activeElement);
    if (focused >= 0) show(focused);
    else hide();
  }

  svg.addEventListener("pointerover", (event) => {
    const node = shapes.indexOf(event.target.closest(".node"));
    if (node >= 0) show(node);
    else restore();
  });
  svg.addEventListener("pointerleave", restore);
  // Not on the drawing: browsers let the focus stop at an SVG element that listens to it.
  byId("frame").addEventListener("focusin", restore);
  byId("frame").addEventListener("focusout", hide);
  return { hide, place };
}

function tipContent(told, node) {
  const { nodes, costs, clock } = told;
  const line = (title, text, here = false) =>
    element(
      "tr",
      here ? { class: "here" } : {},
      element("th", { scope: "row" }, title),
      element("td", { class: "number" }, text),
    );
  const seconds = told.devices.map((device, number) =>
    line(
      `${number === nodes.device[node] ? "✓ " : ""}${letters(number)} ${device}`,
      nodes.seconds[number][node] === null
        ? "not supported"
        : `${inUnit(nodes.seconds[number][node], costs)} ${costs.name}`,
      number === nodes.device[node],
    ),
  );
  const times = ["predicted", "measured"]
    .filter((kind) => nodes[kind] && nodes[kind][0][node] !== null)
    .map((kind) => {
      const [start, finish] = nodes[kind].map((times) => inUnit(times[node], clock));
      return line(kind, `${start} to ${finish} ${clock.name}`);
    });
  return [
    element("strong", {}, nodes.name[node]),
    kindOf(nodes, node),
    element("table", {}, element("tbody", {}, ...seconds, ...times)),
  ];
}
