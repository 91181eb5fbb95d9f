// The controls of the replay: which rollout is shown, and at what time.
"use strict";

(async () => {
  if (typeof DecompressionStream === "undefined") {
    element("description").textContent = "This browser is too old for the replay.";
    return;
  }
  const rollouts = await readRollouts();
  const { values, columns, pathOf, costOf, fails, touches } = rollouts;
  const drawRollout = drawingOn(element("canvas"), rollouts);
  const seconds = (step) => `${(step * values.timeStep).toFixed(2)} s`;
  const environment = (row) =>
    values.sites.length ? `${values.environments[row]} “${values.sites[row]}”` : `${values.environments[row]}`;
  const costText = (cost) => (values.binary ? `${cost}` : cost.toFixed(3));

  // ---- state ------------------------------------------------------------------------------------

  const state = { row: 0, column: 0, step: 0, playing: false, path: pathOf(0, 0) };
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  function choose(row, column, note = "") {
    Object.assign(state, { row, column, step: 0, path: pathOf(row, column) });
    pause();
    element("policy").value = column;
    element("scrub").max = state.path.last;
    fillEnvironments();
    describe(note);
    draw();
  }

  // A text for readers who do not see the canvas, once for each rollout.
  function describe(note) {
    const { row, column, path } = state;
    const cost = costOf(row, column), touched = touches(row, column);
    let text = `Environment ${environment(row)}, ${values.names[column]}: ${values.recorded ? "recorded cost" : "cost"} ` +
      `${costText(cost)}. The path ends ${touched ? "in contact" : "without contact"} after ` +
      `${seconds(path.last)}.`;
    if (values.contactIsFailure && touched !== (cost === 1)) {
      text += " This replay ends otherwise than the rollout that was recorded: it is computed more " +
        "precisely, and here that decides. The certificate counts the recorded cost.";
    }
    element("description").textContent = note ? `${note} ${text}` : text;
  }

  function rowsShown(column) {
    const rows = [];
    for (let row = 0; row < values.environments.length; row++) {
      if (!element("only-failures").checked || fails(row, column)) rows.push(row);
    }
    return rows;
  }

  let listed = "";  // which list of environments is shown: it is long, and made again only if it changes
  function fillEnvironments() {
    const list = element("environment"), key = `${state.column} ${element("only-failures").checked}`;
    if (key !== listed) {
      listed = key;
      list.replaceChildren(...rowsShown(state.column).map((row) => {
        const cost = costOf(row, state.column);
        const word = values.binary ? (cost ? "✕ fails" : "✓ passes") : `cost ${costText(cost)}`;
        return new Option(`${environment(row)}   ${word}`, row);
      }));
      list.disabled = list.options.length === 0;
      if (list.disabled) list.append(new Option("none"));
    }
    list.value = state.row;
    element("previous").disabled = element("next").disabled = list.disabled;
  }

  // ---- showing ----------------------------------------------------------------------------------

  function draw() {
    drawRollout({ ...state, others: element("others").checked });
    readOut();
  }

  function readOut() {
    const step = Math.floor(state.step), { path } = state;
    element("time").textContent = seconds(step);
    element("step").textContent = `${step} of ${path.last}`;
    element("x").textContent = `${path.x[step].toFixed(2)} m`;
    element("y").textContent = `${path.y[step].toFixed(2)} m`;
    element("cost").textContent = costText(costOf(state.row, state.column));
    const scrub = element("scrub");
    scrub.value = step;
    scrub.setAttribute("aria-valuetext", seconds(step));
  }

  // ---- time -------------------------------------------------------------------------------------

  function goTo(step) {
    pause();
    state.step = Math.min(Math.max(0, step), state.path.last);
    draw();
  }

  function pause() {
    state.playing = false;
    element("play").textContent = "Play";
  }

  function play() {
    if (state.step >= state.path.last) {
      state.step = 0;
      draw();
    }
    state.playing = true;
    element("play").textContent = "Pause";
    let before = performance.now();
    const frame = (now) => {
      if (!state.playing) return;
      const passed = (now - before) / 1000 / values.timeStep;
      state.step = Math.min(state.path.last, state.step + Math.max(0, passed) * element("speed").value);
      before = now;
      if (state.step === state.path.last) pause();
      draw();
      if (state.playing) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  const toggle = () => (state.playing ? pause() : play());

  // ---- choosing ---------------------------------------------------------------------------------

  function chooseAndLink(row, column, note) {
    choose(row, column, note);
    const link = `#env=${values.environments[row]}&policy=${values.policies[column]}`;
    history.replaceState(null, "", link);
  }

  // With the filter on, stay where the rollout fails; where a policy never does, say so.
  function choosePolicy(column) {
    const rows = rowsShown(column);
    if (rows.length === 0) {
      chooseAndLink(state.row, column, "This policy fails in none of these environments.");
    } else {
      chooseAndLink(rows.includes(state.row) ? state.row : rows[0], column);
    }
  }

  function move(by) {
    const rows = rowsShown(state.column);
    if (rows.length === 0) return;
    const at = rows.indexOf(state.row);
    chooseAndLink(rows[(Math.max(at, 0) + by + rows.length) % rows.length], state.column);
  }

  // As in deployment: a policy by its share, an environment with equal chances.
  function chooseRandom() {
    const open = values.policies.map((_, column) => rowsShown(column));
    const weight = values.shares.map((share, column) => (open[column].length ? share : 0));
    let left = Math.random() * weight.reduce((a, b) => a + b, 0), column = 0;
    if (left === 0) {  // no likely policy fails: take any that does
      column = open.findIndex((rows) => rows.length);
      if (column < 0) return;
    } else {
      while (column < columns - 1 && left >= weight[column]) left -= weight[column++];
    }
    chooseAndLink(open[column][Math.floor(Math.random() * open[column].length)], column);
  }

  // A hard environment: by the likeliest policy that fails there, if any does.
  function watch(environment) {
    const row = values.environments.indexOf(environment);
    const failing = values.policies.findIndex((_, column) => fails(row, column));
    element("only-failures").checked = false;
    chooseAndLink(row, Math.max(failing, 0));
    element("stage").scrollIntoView({ block: "center" });
    element("stage").focus({ preventScroll: true });
    if (!calm.matches) play();
  }

  function followLink() {
    const link = new URLSearchParams(location.hash.slice(1));
    if (!link.has("env")) return false;
    const row = values.environments.indexOf(Number(link.get("env")));
    const column = link.has("policy") ? values.policies.indexOf(Number(link.get("policy"))) : 0;
    if (row < 0 || column < 0) {
      choose(0, 0, "The rollout that the link names is not in this page.");
    } else {
      element("only-failures").checked &&= fails(row, column);
      choose(row, column);
    }
    element("replay").scrollIntoView();
    return true;
  }

  // ---- controls ---------------------------------------------------------------------------------

  const on = (id, event, action) => element(id).addEventListener(event, action);
  on("play", "click", toggle);
  on("back", "click", () => goTo(Math.ceil(state.step) - 1));
  on("forward", "click", () => goTo(Math.floor(state.step) + 1));
  on("scrub", "input", () => goTo(Number(element("scrub").value)));
  on("previous", "click", () => move(-1));
  on("next", "click", () => move(1));
  on("random", "click", chooseRandom);
  on("policy", "change", () => choosePolicy(Number(element("policy").value)));
  on("environment", "change", () => chooseAndLink(Number(element("environment").value), state.column));
  on("only-failures", "change", () => choosePolicy(state.column));
  on("others", "change", draw);
  on("stage", "pointerdown", () => element("stage").focus());
  for (const button of document.querySelectorAll("button.watch")) {
    button.addEventListener("click", () => watch(Number(button.dataset.environment)));
  }

  const keys = {
    " ": toggle,
    ArrowLeft: () => element("back").click(),
    ArrowRight: () => element("forward").click(),
    n: () => move(1),
    p: () => move(-1),
    f: () => element("only-failures").click(),
  };
  on("player", "keydown", (event) => {
    const { target, key } = event;
    // If a control uses the key itself, that comes first.
    const own = target.matches("select") || (key === " " && target.matches("button, input")) ||
      (key.startsWith("Arrow") && target.matches("input[type=range]"));
    if (own || event.ctrlKey || event.metaKey || event.altKey || !(key in keys)) return;
    event.preventDefault();
    keys[key]();
  });

  const [left, right, bottom, top] = values.view;  // at most so wide that it is not too tall
  element("stage").style.setProperty("--widest", `${(36 * (right - left)) / (top - bottom)}rem`);
  addEventListener("hashchange", followLink);
  for (const medium of ["print", "(prefers-color-scheme: dark)"]) {
    matchMedia(medium).addEventListener("change", draw);  // with the colours of the page there
  }
  document.addEventListener("themechange", draw);
  addEventListener("beforeprint", () => goTo(state.path.last));
  new ResizeObserver(draw).observe(element("canvas"));

  values.names.forEach((name, column) => {
    const share = values.shares[column];
    const part = columns > 1 ? ` (${(100 * share).toFixed(1)} %)` : "";
    element("policy").append(new Option(name + part, column));
  });
  if (!followLink()) choose(0, 0);
  element("player").dataset.ready = "yes";
})();
