"use strict";
// One row at a time. Nothing is shown as saved before the program has said that it lies on the disk.

const token = new URLSearchParams(location.search).get("token");
const part = (name) => document.getElementById(name);
let state = null;
let waiting = false;
let drawn = 0;

// So long a row is to be seen before it can be labelled: what comes sooner was meant for the one before.
const SEEN = 400;
// So long the label that was given stays marked.
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
    const found = await answer.json();
    if (path === "finish") {
      close(found);
      return;
    }
    state = found;
    draw();
    if (path === "answer") answered(body.place);
    if (path === "back") takenBack();
  } catch (fault) {
    say("Not saved: the program does not answer. Is it still running?", true);
  } finally {
    waiting = false;
  }
}

function say(text, fault = false) {
  part("message").textContent = text;
  part("message").className = fault ? "fault" : "";
}

function element(kind, text, className = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  made.className = className;
  return made;
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
    ? "You can still undo. After that, finish: the results are written and the program ends."
    : `Click a label or press its key, 1${last > 1 ? ` to ${last}` : ""}. Every label is saved at once: you can `
      + "close this page at any time, and the same command goes on where you stopped.";
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
    say("That row had a label already, from another window or a second click; here is the next one.");
    return;
  }
  say(`Saved: ${state.labels[place]}`);
}

function takenBack() {
  if (state.taken === null) {
    say("There is no label to undo.");
    return;
  }
  const button = part("labels").children[state.taken];
  if (button) button.classList.add("before");
  say(`Undone: this row was labelled ${state.labels[state.taken]}. Give it a label again.`);
}

function give(place) {
  if (!state || state.row === null) return;
  if (place >= state.labels.length) {
    say(`No label has the key ${place + 1}: the keys are 1 to ${state.labels.length}.`);
    return;
  }
  if (performance.now() - drawn < SEEN) {
    say("That came too soon after the last one, and was not counted.");
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

function close(found) {
  state = null;
  part("work").hidden = true;
  part("told").replaceChildren(...found.told.map((line) => element("p", line)));
  part("folder").textContent = found.folder;
  part("files").replaceChildren(...found.files.map(([name, what]) => {
    const item = document.createElement("li");
    item.append(element("bdi", name), `: ${what}`);
    return item;
  }));
  if (found.table.length) drawTable(found.caption, found.table);
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
      const made = element(place ? kind : "th", cell);
      if (made.tagName === "TH") made.scope = kind === "th" ? "col" : "row";
      return made;
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
  if (event.key >= "1" && event.key <= "9") give(Number(event.key) - 1);
  if (event.key === "Backspace") {
    event.preventDefault();
    ask("back", {});
  }
});
part("back").addEventListener("click", () => ask("back", {}));
part("finish").addEventListener("click", finish);
ask("state");
