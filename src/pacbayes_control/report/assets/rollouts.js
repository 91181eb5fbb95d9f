// The rollouts that the page holds: values as JSON, arrays deflated in base 64 (report/replay.py).
"use strict";

const element = (id) => document.getElementById(id);

async function readRollouts() {
  const values = JSON.parse(element("replay-values").textContent);
  const columns = values.policies.length;
  const kinds = { Uint32Array, Int32Array, Int16Array, Int8Array, Uint16Array, Uint8Array, Float32Array };

  async function unpack(name) {
    const script = element(`pack-${name}`);
    const text = atob(script.textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new kinds[script.dataset.kind](await new Response(stream).arrayBuffer());
  }

  const names = ["lengths", "starts", "steps", "bends", "contacts", "costs",
    "circles", "circle-counts", "boxes", "box-counts"];
  const [lengths, starts, steps, bends, contacts, costs, circles, circleCounts, boxes, boxCounts] =
    await Promise.all(names.map(unpack));

  // Where the part of each path, or of each scene, begins.
  function offsets(counts) {
    const begin = new Uint32Array(counts.length + 1);
    for (let i = 0; i < counts.length; i++) begin[i + 1] = begin[i] + counts[i];
    return begin;
  }
  const bendsBegin = offsets(lengths.map((n) => Math.max(0, n - 2)));
  const circlesBegin = offsets(circleCounts), boxesBegin = offsets(boxCounts);

  // The points of a path, added up from its first point, its first step and its bends; in metres.
  function pathOf(row, column) {
    const pair = row * columns + column, count = lengths[pair];
    const path = [0, 1].map((axis) => {
      const points = new Float64Array(count);
      let place = starts[2 * pair + axis], step = steps[2 * pair + axis];
      let bend = bendsBegin[pair] + axis * (bends.length / 2);
      for (let i = 0; i < count; i++) {
        points[i] = place * values.grid;
        place += step;
        if (i < count - 2) step += bends[bend++];
      }
      return points;
    });
    return { x: path[0], y: path[1], last: count - 1 };
  }

  const costOf = (row, column) => costs[row * columns + column] / values.costScale;
  const fails = (row, column) => costOf(row, column) >= 0.5;
  const touches = (row, column) => contacts[row * columns + column] === 1;

  const circlesOf = (row) => circles.subarray(3 * circlesBegin[row], 3 * circlesBegin[row + 1]);
  // Boxes that are the same in every environment are kept once.
  function boxesOf(row) {
    const scene = boxCounts.length === 1 ? 0 : row;
    return boxes.subarray(4 * boxesBegin[scene], 4 * boxesBegin[scene + 1]);
  }

  return { values, columns, pathOf, costOf, fails, touches, circlesOf, boxesOf };
}
