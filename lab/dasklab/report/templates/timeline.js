// Draws the timeline of a trial's page, in the colours of the page: light, dark, or paper. Buttons and keys move
// the time axis, which all panels share. Each panel holds all its rectangles; those that are drawn depend on the
// part of the run that is shown (timeline_levels.js).
"use strict";

(async () => {
  const frame = document.querySelector(".timeline");
  const shown = frame.querySelector("output");
  const schemes = window.matchMedia("(prefers-color-scheme: dark)");
  const item = JSON.parse(document.getElementById("timeline-data").textContent);
  await Bokeh.embed.embed_item(item, "timeline");
  const content = Bokeh.documents[Bokeh.documents.length - 1];
  const time = content.get_model_by_name("time");
  const colours = content.get_model_by_name("colours");
  const panels = content.roots()[0].children;
  const levels = panels.map((panel) => new Levels(panel.tags[1]));
  const labels = panels.map((panel) => new Map(panel.left[0].major_label_overrides));
  const whole = { start: time.start, end: time.end };

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function paint(ink, soft, line, paper, palette) {
    colours.palette = palette;
    for (const panel of panels) {
      panel.setv({ background_fill_color: paper, border_fill_color: paper, outline_line_color: line });
      panel.title.text_color = ink;
      for (const axis of [...panel.left, ...panel.below]) {
        axis.setv({ major_label_text_color: soft, axis_label_text_color: soft, major_tick_line_color: line });
        axis.setv({ minor_tick_line_color: line, axis_line_color: line });
      }
      for (const other of panel.center) if ("grid_line_color" in other) other.grid_line_color = line;
    }
  }

  function paintScreen() {
    const palette = frame.dataset.parts.split(" ").map(colour);
    paint(colour("ink"), colour("soft"), colour("line"), colour("paper"), palette);
  }

  function paintPaper() {
    paint("#000000", "#444444", "#d9d9d2", "#ffffff", frame.dataset.paper.split(" "));
  }

  // A narrow screen has no room for the names of the rows, and a finger must be able to scroll the page.
  function fit() {
    const narrow = frame.clientWidth < 620;
    panels.forEach((panel, index) => {
      const short = new Map(panel.tags[0]);
      panel.min_border_left = narrow ? 64 : 150;
      panel.left[0].major_label_overrides = narrow ? short : labels[index];
      if (window.matchMedia("(pointer: coarse)").matches) panel.toolbar.active_drag = null;
    });
  }

  function show(start, end) {
    const length = Math.min(end - start, whole.end);
    const first = Math.min(Math.max(start, 0), whole.end - length);
    time.setv({ start: first, end: first + length });
  }

  let waiting = false;
  function draw() {
    waiting = false;
    panels.forEach((panel, index) => {
      panel.renderers[0].data_source.data = levels[index].between(time.start, time.end, frame.clientWidth);
    });
  }

  function follow() {
    describe();
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  }

  function describe() {
    shown.textContent = `${time.start.toFixed(4)} to ${time.end.toFixed(4)} s of ${whole.end.toFixed(4)} s`;
  }

  const actions = {
    in: (middle, half) => show(middle - half / 2, middle + half / 2),
    out: (middle, half) => show(middle - half * 2, middle + half * 2),
    back: (middle, half) => show(middle - half * 1.5, middle + half * 0.5),
    on: (middle, half) => show(middle - half * 0.5, middle + half * 1.5),
    all: () => show(whole.start, whole.end),
  };
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "back", ArrowRight: "on", 0: "all" };

  function act(name) {
    if (name) actions[name]((time.start + time.end) / 2, (time.end - time.start) / 2);
    return Boolean(name);
  }

  frame.querySelector(".controls").addEventListener("click", (event) => act(event.target.dataset.does));
  frame.addEventListener("keydown", (event) => {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (plain && act(keys[event.key])) event.preventDefault();
  });
  time.change.connect(follow);
  schemes.addEventListener("change", paintScreen);
  window.addEventListener("beforeprint", paintPaper);
  window.addEventListener("afterprint", paintScreen);
  window.addEventListener("resize", fit);
  paintScreen();
  fit();
  describe();
  draw();
  frame.dataset.drawn = "true";
})();
