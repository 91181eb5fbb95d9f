// One rollout on a canvas: obstacles, walls, the robot, its trail and the way ahead.
"use strict";

// Returns draw({ row, column, path, step, others }): step may lie between two whole ones; others
// says whether the paths of the other policies are to be seen, faintly.
function drawingOn(canvas, rollouts) {
  const [left, right, bottom, top] = rollouts.values.view;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);

  const height = (width) => (width * (top - bottom)) / (right - left);
  canvas.style.aspectRatio = `${right - left} / ${top - bottom}`;

  function draw(shown) {
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    const pixels = Math.round(width * ratio);
    if (canvas.width !== pixels) {
      canvas.width = pixels;
      canvas.height = Math.round(height(width) * ratio);
    }
    const scale = pixels / (right - left);
    const pen = canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = colour("paper");
    pen.fillRect(0, 0, canvas.width, canvas.height);
    // From here on in metres, with y upwards.
    pen.setTransform(scale, 0, 0, -scale, -left * scale, top * scale);
    const point = ratio / scale;  // a CSS pixel
    drawScene(pen, point, shown);
    drawPaths(pen, point, shown);
    drawRobot(pen, point, shown);
  }

  function drawScene(pen, point, { row }) {
    pen.lineWidth = point;
    pen.strokeStyle = colour("faint");
    pen.beginPath();
    for (let x = Math.ceil(left); x <= right; x++) { pen.moveTo(x, bottom); pen.lineTo(x, top); }
    for (let y = Math.ceil(bottom); y <= top; y++) { pen.moveTo(left, y); pen.lineTo(right, y); }
    if ((right - left) / point < 4000 && right - left < 100) pen.stroke();
    pen.fillStyle = colour("dark");
    const boxes = rollouts.boxesOf(row), circles = rollouts.circlesOf(row);
    for (let i = 0; i < boxes.length; i += 4) {
      pen.fillRect(boxes[i], boxes[i + 2], boxes[i + 1] - boxes[i], boxes[i + 3] - boxes[i + 2]);
    }
    pen.fillStyle = colour("grey");
    pen.strokeStyle = colour("dark");
    for (let i = 0; i < circles.length; i += 3) {
      disc(pen, circles[i], circles[i + 1], circles[i + 2]);
      pen.fill();
      pen.stroke();
    }
  }

  function disc(pen, x, y, radius) {
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
  }

  function line(pen, path, end) {
    pen.beginPath();
    pen.moveTo(path.x[0], path.y[0]);
    for (let i = 1; i <= Math.floor(end); i++) pen.lineTo(path.x[i], path.y[i]);
    const now = place(path, end);
    pen.lineTo(now.x, now.y);
    pen.stroke();
  }

  function drawPaths(pen, point, { row, path, step, others }) {
    if (others) {
      pen.lineWidth = point;
      pen.strokeStyle = colour("soft");
      pen.globalAlpha = 0.4;
      for (let column = 0; column < rollouts.columns; column++) {
        const other = rollouts.pathOf(row, column);
        line(pen, other, other.last);
      }
      pen.globalAlpha = 1;
    }
    pen.strokeStyle = colour("blue");
    pen.lineWidth = 1.2 * point;
    pen.setLineDash([3 * point, 4 * point]);
    line(pen, path, path.last);
    pen.setLineDash([]);
    pen.lineWidth = 3 * point;
    line(pen, path, step);
  }

  // Position between two steps, and the heading from the steps around: a single one is coarse.
  function place(path, step) {
    const i = Math.min(Math.floor(step), path.last), j = Math.min(i + 1, path.last);
    const part = step - i, a = Math.max(0, i - 1), b = Math.min(path.last, i + 2);
    return {
      x: path.x[i] + part * (path.x[j] - path.x[i]),
      y: path.y[i] + part * (path.y[j] - path.y[i]),
      heading: Math.atan2(path.y[b] - path.y[a], path.x[b] - path.x[a]),
    };
  }

  function drawRobot(pen, point, { row, column, path, step }) {
    const radius = rollouts.values.robotRadius, { x, y, heading } = place(path, step);
    pen.fillStyle = colour("blue");
    pen.strokeStyle = colour("paper");
    pen.lineWidth = 1.5 * point;
    disc(pen, x, y, radius);
    pen.fill();
    pen.stroke();
    pen.lineWidth = 2.5 * point;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x + radius * Math.cos(heading), y + radius * Math.sin(heading));
    pen.stroke();
    if (step === path.last && rollouts.touches(row, column)) {
      drawContact(pen, point, x, y, 1.5 * radius);
    }
  }

  function drawContact(pen, point, x, y, size) {
    pen.strokeStyle = colour("orange");
    pen.lineWidth = 4 * point;
    pen.beginPath();
    pen.moveTo(x - size, y - size);
    pen.lineTo(x + size, y + size);
    pen.moveTo(x - size, y + size);
    pen.lineTo(x + size, y - size);
    pen.stroke();
    pen.save();
    pen.translate(x, y);
    pen.scale(point, -point);  // letters are upright, and as large as on the page
    pen.font = "bold 15px system-ui, sans-serif";
    const aside = size / point + 6, flip = x > (left + right) / 2;
    pen.textAlign = flip ? "right" : "left";
    pen.lineWidth = 4;
    pen.strokeStyle = colour("paper");
    pen.strokeText("contact", flip ? -aside : aside, 5);
    pen.fillStyle = colour("orange");
    pen.fillText("contact", flip ? -aside : aside, 5);
    pen.restore();
  }

  return draw;
}
