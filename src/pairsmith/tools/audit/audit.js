"use strict";
// Shows one row at a time. A label is shown as saved only after the server has confirmed that it is on the disk.

const token = new URLSearchParams(location.search).get("token");
const part = (name) => document.getElementById(name);
let state = null;
let waiting = false;
let drawn = 0; // when the current row was shown, in milliseconds

// Milliseconds for which a row is shown before it can be labelled: an earlier key was meant for the row before.
const SEEN = 400;
// Milliseconds for which the chosen label stays marked.
const MARKED = 900;

async function ask(path, body) {
  if (waiting) return;
  waiting = true;
  try {
    const address = `${path}?token=${encodeURIComponent(token)}`;
    const options = body === undefined ? {} : {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    };
    const answer = await fetch(address, options);
    if (!answer.ok) {
      say(`Not saved: ${await answer.text()}`, true);
      return;
    }
    const result = await answer.json();
    if (path === "finish") {
      close(result);
      return;
    }
    state = result;
    draw();
    if (path === "answer") answered(body.place);
    if (path === "back") undone();
  } catch (fault) {
    say("Not saved: the pairsmith program does not answer. Is it still running?", true);
  } finally {
    waiting = false;
  }
}

function say(text, fault = false) {
  part("message").textContent = text;
  part("message").className = fault ? "fault" : "";
}

function element(kind, text, className = "") {
  const node = document.createElement(kind);
  node.textContent = text;
  node.className = className;
  return node;
}

function draw() {
  const ended = state.row === null;
  drawn = performance.now();
  say("");
  part("question").textContent = ended ? "All rows are labelled." : state.question;
  part("progress").max = state.total;
  part("progress").value = state.done;
  part("count").textContent = `${state.done} of ${state.total} labelled`;
  part("who").textContent = `by ${state.annotator}`;
  part("texts").replaceChildren(...state.texts.map(([name, text]) => {
    const box = document.createElement("section");
    const body = element("p", text, "text");
    body.dir = "auto";
    box.append(element("h2", name), body);
    return box;
  }));
  for (const box of part("texts").children) {
    if (box.scrollHeight > box.clientHeight) box.tabIndex = 0; // so that the keyboard can scroll it
  }
  if (part("labels").children.length !== state.labels.length) drawLabels();
  for (const button of part("labels").children) button.classList.remove("before");
  part("labels").hidden = ended;
  part("back").disabled = state.done === 0;
  part("finish").hidden = !ended;
  const last = state.labels.length;
  part("hint").textContent = ended
    ? "You can still undo labels. Then finish: the results are written, and the program ends."
    : `Click a label or press its key, 1${last > 1 ? ` to ${last}` : ""}. Every label is saved at once. You can `
      + "stop at any time; run the same command again to continue with the next row.";
  if (ended) part("finish").focus();
}

function drawLabels() {
  part("labels").replaceChildren(...state.labels.map((label, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(element("kbd", place + 1), element("bdi", label, "name"));
    if (state.meanings[place]) button.append(element("bdi", state.meanings[place], "meaning"));
    button.addEventListener("click", () => give(place));
    return button;
  }));
}

function mark(place) {
  for (const button of part("labels").children) button.classList.remove("chosen");
  const button = part("labels").children[place];
  button.classList.add("chosen");
  setTimeout(() => button.classList.remove("chosen"), MARKED);
}

function answered(place) {
  if (state.counted === false) {
    say("The last row already had a label, from another window or a second click. This is the next row.");
    return;
  }
  say(`Saved: ${state.labels[place]}`);
}

function undone() {
  if (state.undone === null) {
    say("There is no label to undo.");
    return;
  }
  const button = part("labels").children[state.undone];
  if (button) button.classList.add("before");
  say(`Undone: you had labelled this row ${state.labels[state.undone]}. Choose its label again.`);
}

function give(place) {
  if (!state || state.row === null) return;
  if (place >= state.labels.length) {
    say(`No label has the key ${place + 1}: the keys are 1 to ${state.labels.length}.`);
    return;
  }
  if (performance.now() - drawn < SEEN) {
    say("Not counted: the key came too soon after the last label. Look at this row, then choose its label.");
    return;
  }
  mark(place);
  ask("answer", { row: state.row, place });
}

async function finish() {
  say("Writing the results, which may take a few seconds …");
  part("finish").disabled = true;
  await ask("finish", {});
  part("finish").disabled = false;
}

function close(results) {
  state = null;
  part("work").hidden = true;
  part("summary").replaceChildren(...results.summary.map((line) => element("p", line)));
  part("folder").textContent = results.folder;
  part("files").replaceChildren(...results.files.map(([name, what]) => {
    const item = document.createElement("li");
    item.append(element("bdi", name), `: ${what}`);
    return item;
  }));
  if (results.table.length) drawTable(results.caption, results.table);
  part("end").hidden = false;
  part("thanks").focus();
}

function drawTable(caption, [head, ...rows]) {
  const table = document.createElement("table");
  const top = document.createElement("thead");
  const body = document.createElement("tbody");
  const line = (cells, kind) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell, place) => {
      const node = element(place ? kind : "th", cell);
      if (node.tagName === "TH") node.scope = kind === "th" ? "col" : "row";
      return node;
    }));
    return row;
  };
  top.append(line(head, "th"));
  body.append(...rows.map((row) => line(row, "td")));
  table.append(element("caption", caption), top, body);
  part("table").replaceChildren(table);
}

document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey || !state) return;
  // French keyboards write "&" with the key 1, and Arabic ones "١": the place of the key counts, too.
  const placed = event.shiftKey ? null : event.code.match(/^Digit([1-9])$/);
  const digit = /^[1-9]$/.test(event.key) ? event.key : placed && placed[1];
  if (digit) give(Number(digit) - 1);
  if (event.key === "Backspace") {
    event.preventDefault();
    ask("back", {});
  }
});
part("back").addEventListener("click", () => ask("back", {}));
part("finish").addEventListener("click", finish);
ask("state");
