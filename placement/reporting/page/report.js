// What every part of the page uses, the tables, and the start. All scripts share one scope.

const COLOURS = 6; // as many as the style has for devices
const byId = (id) => document.getElementById(id);

/** An HTML element with attributes and children; texts are texts, never markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svgElement(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
const inUnit = (value, unit) => (value === null ? "-" : value.toFixed(unit.decimals));

function inBytes(bytes) {
  const power = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), 4);
  const unit = ["B", "kB", "MB", "GB", "TB"][power];
  return `${(bytes / 1000 ** power).toFixed(power ? 2 : 0)} ${unit}`;
}

/** A, B, ... Z, AA, AB, ...: what tells devices apart where colours do not. */
function letters(device) {
  const before = device < 26 ? "" : letters(Math.floor(device / 26) - 1);
  return before + String.fromCharCode(65 + (device % 26));
}

/** The outline of a device's operations, centred on the origin: four shapes in turn. */
function shape(device, width, height) {
  const [x, y] = [width / 2, height / 2];
  const cut = [0, y, y, 0][device % 4];
  const bend = [0, 0, y / 2, y / 2][device % 4];
  if (device % 4 === 3) return `M${-x + bend} ${-y}H${x}L${x - bend} ${y}H${-x}Z`;
  if (device % 4 === 2) {
    return `M${-x + bend} ${-y}H${x - bend}L${x} 0L${x - bend} ${y}H${-x + bend}L${-x} 0Z`;
  }
  const round = cut ? `a${cut} ${cut} 0 0 1 0 ${height}` : `v${height}`;
  const back = cut ? `a${cut} ${cut} 0 0 1 0 ${-height}` : "Z";
  return `M${-x + cut} ${-y}H${x - cut}${round}H${-x + cut}${back}`;
}

/** A device's shape with its letter, as in the graph. */
function key(device) {
  const drawn = svgElement("svg", { class: `key d${device % COLOURS}`, viewBox: "-19 -13 38 26" });
  drawn.setAttribute("aria-hidden", "true");
  drawn.append(
    svgElement("path", { class: "shape", d: shape(device, 34, 22) }),
    svgElement("text", { y: 4 }, letters(device)),
  );
  return drawn;
}

/** Headers become buttons that sort the rows of each body; what has no number comes last. */
function sortable(table) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    header.replaceChildren(element("button", { type: "button" }, ...header.childNodes));
    header.setAttribute("aria-sort", "none");
    header.firstChild.addEventListener("click", () => {
      const ascending = header.getAttribute("aria-sort") !== "ascending";
      for (const other of headers) other.setAttribute("aria-sort", "none");
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const numeric = header.classList.contains("number");
      for (const body of table.tBodies) sortRows(body, column, numeric, ascending ? 1 : -1);
    });
  });
}

function sortRows(body, column, numeric, sign) {
  const rows = [...body.rows].filter((row) => !row.classList.contains("divider"));
  const text = (row) => row.cells[column].textContent;
  const compare = (one, other) => {
    if (!numeric) return sign * text(one).localeCompare(text(other), "en");
    const [a, b] = [parseFloat(text(one)), parseFloat(text(other))];
    return isNaN(a) || isNaN(b) ? isNaN(a) - isNaN(b) : sign * (a - b);
  };
  body.append(...rows.sort(compare));
}

/** Boxes whose content is wider than they are say so, and can be scrolled from the keyboard. */
function watchWidth(box) {
  const hint = element("p", { class: "hint note" }, "Scroll sideways for more →");
  box.before(hint);
  const observer = new ResizeObserver(() => {
    const wide = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("wide", wide);
    hint.hidden = !wide;
    if (wide || box.scrollHeight > box.clientHeight + 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
  observer.observe(box);
  observer.observe(box.firstElementChild);
}

function describeDrawing(told) {
  const { nodes, ops } = told;
  const many = plural(ops.name.length, "operation");
  const drawn = plural(nodes.name.length, told.blocks ? "block" : "coarse operation");
  const all = nodes.name.length === ops.name.length;
  const what = all ? `All ${many} are drawn.` : `${many} are drawn as ${drawn}.`;
  byId("drawn").textContent = `${what} Times: ${told.how.join("; ")}.`;

  const entry = (sample, text) => byId("legend").append(element("li", {}, sample, text));
  const counts = told.devices.map(() => 0);
  for (const whole of ops.coarse) counts[told.deviceOf[whole]] += 1;
  told.devices.forEach((device, number) => {
    entry(key(number), `${device}: ${plural(counts[number], "operation")}`);
    byId("device").append(element("option", { value: number }, `${letters(number)} ${device}`));
  });
  const line = (kind) => {
    const sample = svgElement("svg", { class: "key", viewBox: "0 0 38 26", "aria-hidden": "true" });
    sample.append(svgElement("path", { class: kind, d: "M0 13H38" }));
    return sample;
  };
  entry(line("edge"), "within a device");
  entry(line("edge crossing"), `to another device (${plural(told.crossings, "tensor")})`);
}

function start(told) {
  describeDrawing(told);
  const graph = drawing(told, (node) => list.showMembers(node));
  const list = operations(told, (op) => graph.show(told.nodeOf[told.ops.coarse[op]]));
}

document.querySelectorAll("table.sortable").forEach(sortable);
if (byId("data")) start(JSON.parse(byId("data").textContent));
document.querySelectorAll(".scroll").forEach(watchWidth);
