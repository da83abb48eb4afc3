// The list of all operations: filtered by words and device, a page of rows at a time.

const ROWS = 200;

/**
 * Fills the list and keeps it.
 *
 * @param told What the page knows of the placement.
 * @param picked Called with the operation whose row is picked.
 * @returns What others may ask of the list: `showMembers(node)`.
 */
function operations(told, picked) {
  const { ops } = told;
  const deviceOf = (op) => told.deviceOf[ops.coarse[op]];
  const nodeOf = (op) => told.nodeOf[ops.coarse[op]];
  const haystack = ops.name.map((name, op) => `${name} ${told.types[ops.type[op]]}`.toLowerCase());
  const state = { matches: [], page: 0, chosen: null, members: null };
  const columns = listColumns(told, deviceOf);

  function filter() {
    const words = byId("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const device = byId("device").value;
    state.matches = [];
    for (let op = 0; op < haystack.length; op += 1) {
      if (device !== "" && deviceOf(op) !== Number(device)) continue;
      if (state.members !== null && nodeOf(op) !== state.members) continue;
      if (words.every((word) => haystack[op].includes(word))) state.matches.push(op);
    }
    state.page = 0;
    byId("members").hidden = state.members === null;
    if (state.members !== null) {
      byId("members").textContent = `only in ${told.nodes.name[state.members]} ✕`;
    }
    render();
  }

  function render() {
    const { matches, page } = state;
    const pages = Math.max(1, Math.ceil(matches.length / ROWS));
    const shown = matches.slice(page * ROWS, (page + 1) * ROWS);
    const body = byId("list").tBodies[0];
    body.replaceChildren(...shown.map((op) => listRow(columns, op, op === state.chosen)));
    const first = body.querySelector("tr[aria-current] button") ?? body.querySelector("button");
    if (first) first.tabIndex = 0;
    const all = haystack.length.toLocaleString("en");
    const of = matches.length === haystack.length ? "" : ` of ${all}`;
    byId("count").textContent = plural(matches.length, "operation") + of;
    byId("page").textContent = `page ${page + 1} of ${pages}`;
    byId("previous").disabled = page === 0;
    byId("next").disabled = page === pages - 1;
  }

  function choose(op) {
    state.chosen = op;
    if (!state.matches.includes(op)) {
      byId("words").value = byId("device").value = "";
      filter();
    }
    state.page = Math.floor(state.matches.indexOf(op) / ROWS);
    render();
    const box = byId("list").closest(".scroll");
    const line = box.querySelector("tr[aria-current]");
    box.scrollTop = line.offsetTop - box.clientHeight / 2;
  }

  function showMembers(node) {
    const members = [...ops.name.keys()].filter((op) => nodeOf(op) === node);
    state.members = members.length > 1 ? node : null;
    filter();
    choose(members[0]);
    return members.length;
  }

  function turn(by) {
    state.page += by;
    render();
    byId("list").closest(".scroll").scrollTop = 0;
  }

  byId("list").tHead.append(element("tr", {}, ...columns.map(header)));
  byId("words").addEventListener("input", filter);
  byId("device").addEventListener("change", filter);
  byId("members").addEventListener("click", () => {
    state.members = null;
    filter();
    byId("words").focus();
  });
  document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  byId("list").addEventListener("keydown", moveInList);
  byId("list").tBodies[0].addEventListener("click", (event) => {
    const op = Number(event.target.closest("tr").dataset.op);
    choose(op);
    byId("list").querySelector("tr[aria-current] button").focus({ preventScroll: true });
    picked(op);
  });
  filter();
  return { showMembers };
}

function listRow(columns, op, chosen) {
  const made = element("tr", { "data-op": op, ...(chosen && { "aria-current": "true" }) });
  for (const column of columns) {
    const cell = element(column.row ? "th" : "td", column.row ? { scope: "row" } : {});
    cell.className = [column.kind, column.here?.(op) && "here"].filter(Boolean).join(" ");
    cell.append(...[column.cell(op)].flat());
    made.append(cell);
  }
  return made;
}

function header(column) {
  return element("th", { scope: "col", class: column.kind ?? "" }, column.title);
}

function listColumns(told, deviceOf) {
  const { ops, costs } = told;
  const short = told.devices.map((device) => device.split(" [")[0]);
  const seconds = told.devices.map((_, device) => ({
    title: `${letters(device)} ${costs.name}`,
    kind: "number",
    here: (op) => deviceOf(op) === device,
    cell: (op) => inUnit(ops.seconds[device][op], costs),
  }));
  const columns = [
    {
      title: "name",
      kind: "text",
      row: true,
      cell: (op) => element("button", { type: "button", tabindex: -1 }, ops.name[op]),
    },
    { title: "type", cell: (op) => told.types[ops.type[op]] },
    { title: "shape", cell: (op) => told.shapes[ops.shape[op]] },
    { title: "device", cell: (op) => [key(deviceOf(op)), ` ${short[deviceOf(op)]}`] },
    ...seconds,
    { title: "memory", kind: "number", cell: (op) => inBytes(ops.bytes[op]) },
  ];
  if (!told.coarse) return columns;
  const whole = (op) => told.coarse[ops.coarse[op]];
  return [...columns, { title: "coarse operation", kind: "text", cell: whole }];
}

/** Of the buttons in the list one is in the tab order; the arrow keys move it. */
function moveInList(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || event.target.tagName !== "BUTTON") return;
  const buttons = [...event.currentTarget.querySelectorAll("tbody button")];
  const next = buttons[buttons.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
