// What part of the graph is in view: moved and zoomed by pointers, wheel, buttons and keys.

// Scales, in screen pixels a unit of the drawing.
const LARGEST = 3;
const LEGIBLE = 0.55; // below, nodes have no text
const LEAST = 0.2; // to start with
const PAUSE_MS = 250; // a wheel that scrolls the page goes on scrolling it over the graph

/**
 * Keeps the part of a drawing that is in view, as the drawing's viewBox.
 *
 * @param svg The drawing.
 * @param frame The element that it fills.
 * @param bounds Of all that is drawn: x, y, width and height.
 */
function viewOf(svg, frame, bounds) {
  const view = { x: 0, y: 0, scale: 0 }; // the centre, and screen pixels a unit
  const listeners = [];
  frame.style.setProperty("--aspect", bounds.height / bounds.width);

  function draw() {
    const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
    const [wide, high] = [frame.clientWidth, frame.clientHeight];
    const smallest = Math.min(wide / bounds.width, high / bounds.height, 1);
    view.scale = clamp(view.scale, smallest, LARGEST);
    view.x = clamp(view.x, bounds.x, bounds.x + bounds.width);
    view.y = clamp(view.y, bounds.y, bounds.y + bounds.height);
    const [width, height] = [wide / view.scale, high / view.scale];
    const box = [view.x - width / 2, view.y - height / 2, width, height];
    svg.setAttribute("viewBox", box.join(" "));
    svg.classList.toggle("far", view.scale < LEGIBLE);
    for (const listener of listeners) listener();
  }

  function show(x, y, scale) {
    Object.assign(view, { x, y, scale });
    draw();
  }

  const fit = () => show(bounds.x + bounds.width / 2, bounds.y + bounds.height / 2, 0);
  const pan = (x, y) => show(view.x + x / view.scale, view.y + y / view.scale, view.scale);

  /** Zooms about a point of the screen, which stays where it is; returns whether it could. */
  function zoom(factor, clientX, clientY) {
    const box = frame.getBoundingClientRect();
    const [x, y] = [clientX - box.left - box.width / 2, clientY - box.top - box.height / 2];
    const before = view.scale;
    show(view.x, view.y, before * factor);
    const kept = 1 / before - 1 / view.scale;
    show(view.x + x * kept, view.y + y * kept, view.scale);
    return view.scale !== before;
  }

  /** Moves the view no more than it takes to see a point. */
  function include(x, y) {
    const far = (size, node) => Math.max(size / 2 / view.scale - node * 1.5, 0);
    const within = (now, wanted, reach) => Math.min(Math.max(now, wanted - reach), wanted + reach);
    const wide = far(frame.clientWidth, NODE.width);
    const high = far(frame.clientHeight, NODE.height);
    show(within(view.x, x, wide), within(view.y, y, high), view.scale);
  }

  fit();
  // A long graph starts with its beginning: of all of it at once, nothing could be told.
  if (view.scale < LEAST) show(bounds.x + frame.clientWidth / 2 / LEAST, view.y, LEAST);
  new ResizeObserver(draw).observe(frame);
  wheelZooms(svg, zoom);
  return {
    key: viewKeys(frame, { fit, pan, zoom }),
    dragged: pointersMove(svg, zoom, pan),
    include,
    centre: (x, y) => show(x, y, Math.max(view.scale, 0.8)),
    moved: (listener) => listeners.push(listener),
  };
}

/** The buttons, and what the keys do to the view: a function that says whether a key does. */
function viewKeys(frame, { fit, pan, zoom }) {
  const about = (factor) => {
    const box = frame.getBoundingClientRect();
    zoom(factor, box.left + box.width / 2, box.top + box.height / 2);
  };
  const actions = {
    "+": () => about(1.3),
    "=": () => about(1.3),
    "-": () => about(1 / 1.3),
    0: fit,
    ArrowLeft: () => pan(-60, 0),
    ArrowRight: () => pan(60, 0),
    ArrowUp: () => pan(0, -60),
    ArrowDown: () => pan(0, 60),
  };
  byId("zoom-in").addEventListener("click", actions["+"]);
  byId("zoom-out").addEventListener("click", actions["-"]);
  byId("fit").addEventListener("click", fit);
  return (name) => {
    actions[name]?.();
    return name in actions;
  };
}

/** Where the wheel can zoom no further, it scrolls the page. */
function wheelZooms(svg, zoom) {
  let pageScrolled = -PAUSE_MS;
  addEventListener(
    "wheel",
    (event) => {
      if (!event.defaultPrevented) pageScrolled = event.timeStamp;
    },
    { passive: true },
  );
  svg.addEventListener(
    "wheel",
    (event) => {
      if (event.timeStamp - pageScrolled < PAUSE_MS && !event.ctrlKey) return;
      const pixels = event.deltaY * [1, 16, 400][event.deltaMode];
      const factor = Math.exp(-pixels * (event.ctrlKey ? 0.01 : 0.002)); // a pinch comes as Ctrl
      if (zoom(factor, event.clientX, event.clientY) || event.ctrlKey) event.preventDefault();
    },
    { passive: false },
  );
}

/** One pointer drags, two zoom; returns whether the last press was a drag and so no click. */
function pointersMove(svg, zoom, pan) {
  const SLACK = 4; // pixels that a click may move
  const held = new Map();
  let moved = 0;

  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    if (held.size === 0) moved = 0;
    held.set(event.pointerId, event);
  });
  svg.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) return;
    const [x, y] = [event.clientX - before.clientX, event.clientY - before.clientY];
    moved += Math.hypot(x, y);
    if (moved < SLACK) return;
    if (!svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
    svg.classList.add("held");
    const others = [...held.values()].filter((other) => other.pointerId !== event.pointerId);
    held.set(event.pointerId, event);
    if (others.length === 0) pan(-x, -y);
    else {
      const [other] = others;
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      zoom(apart(event) / Math.max(apart(before), 1), other.clientX, other.clientY);
    }
  });
  const release = (event) => {
    held.delete(event.pointerId);
    if (held.size === 0) svg.classList.remove("held");
  };
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", release);
  return () => moved >= SLACK;
}
