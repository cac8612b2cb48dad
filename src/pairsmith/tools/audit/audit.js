"use strict";
// One row at a time. Nothing is shown as saved before the program has said that it lies on the disk.

const token = new URLSearchParams(location.search).get("token");
const part = (name) => document.getElementById(name);
let state = null;
let waiting = false;
let drawn = 0;

// So long a row is to be seen before it can be labelled: what comes sooner was meant for the one before.
const SEEN = 400;

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
      say("The results are written. You can close this page.");
      part("labels").replaceChildren();
      part("meanings").replaceChildren();
      state = null;
      return;
    }
    state = found;
    draw();
    if (path === "answer" && state.counted === false) {
      say("That row had a label already, from another window or a second click; here is the next one.");
    }
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

function draw() {
  say("");
  drawn = performance.now();
  part("progress").max = state.total;
  part("progress").value = state.done;
  part("count").textContent = `${state.done} of ${state.total} · ${state.annotator}`;
  part("texts").replaceChildren(...state.texts.map(([name, text]) => {
    const box = document.createElement("section");
    const head = document.createElement("h2");
    const body = document.createElement("p");
    head.textContent = name;
    body.textContent = text;
    body.className = "text";
    body.dir = "auto";
    box.append(head, body);
    return box;
  }));
  part("labels").replaceChildren(...(state.row === null ? [] : state.labels).map((label, place) => {
    const button = document.createElement("button");
    const key = document.createElement("kbd");
    const name = document.createElement("bdi");
    key.textContent = place + 1;
    name.textContent = label;
    button.type = "button";
    button.append(key, name);
    button.addEventListener("click", () => give(place));
    return button;
  }));
  const told = state.row === null ? [] : state.labels.map((label, place) => [label, state.meanings[place]]);
  part("meanings").replaceChildren(...told.filter(([, meaning]) => meaning).map(([label, meaning]) => {
    const line = document.createElement("li");
    const name = document.createElement("bdi");
    const text = document.createElement("bdi");
    name.textContent = label;
    text.textContent = meaning;
    line.append(name, " – ", text);
    return line;
  }));
  if (state.row === null) say("All rows are labelled. Thank you.");
  part("finish").hidden = state.row !== null;
}

function give(place) {
  if (performance.now() - drawn < SEEN) return;
  if (state && state.row !== null && place < state.labels.length) ask("answer", { row: state.row, place });
}

document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key >= "1" && event.key <= "9") give(Number(event.key) - 1);
  if (event.key === "Backspace") {
    event.preventDefault();
    ask("back", {});
  }
});
part("finish").addEventListener("click", () => ask("finish", {}));
ask("state");
