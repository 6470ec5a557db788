// Which node answered? Asks for this page several times and shows, as a comb,
// who sent each reply. A reply names its node in X-Skep-Node, but only when
// the cluster's config asks for that.

const REPLIES = 24;
const COLOURS = ["#f2b035", "#e8825a", "#9fb75a", "#6fa8b8", "#c48bb0", "#d9c04c", "#8f9bd4", "#b98a5b"];

const panel = document.querySelector("#who");
const comb = panel.querySelector(".comb");
const summary = panel.querySelector(".summary");

function show(node, colours) {
  if (!colours.has(node)) {
    colours.set(node, COLOURS[colours.size % COLOURS.length]);
  }
  const cell = document.createElement("li");
  cell.textContent = node;
  cell.style.background = colours.get(node);
  comb.append(cell);
}

async function ask() {
  comb.replaceChildren();
  const colours = new Map();
  for (let reply = 0; reply < REPLIES; reply += 1) {
    const head = await fetch(location.pathname, { method: "HEAD", cache: "no-store" });
    const node = head.headers.get("X-Skep-Node");
    if (node === null) {
      summary.textContent = "The replies name no node. Ask for X-Skep-Node in the config to see them here.";
      return;
    }
    show(node, colours);
  }
  const nodes = [...colours.keys()].sort().join(", ");
  summary.textContent = `${REPLIES} requests, answered by ${colours.size === 1 ? "node" : "nodes"} ${nodes}.`;
}

function refresh() {
  ask().catch(() => {
    summary.textContent = "No answer. Is the cluster still up?";
  });
}

panel.hidden = false;
panel.querySelector("button").addEventListener("click", refresh);
refresh();
