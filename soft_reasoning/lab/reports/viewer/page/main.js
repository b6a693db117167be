// Opening the page, and going from the list to a problem and back by the address.

const app = document.getElementById("app");

function failed(error) {
  app.replaceChildren(el("p", { class: "failed" }, `This report could not be shown: ${error.message}`));
}

async function main() {
  const began = performance.now();
  const index = await unpack(document.getElementById("index").textContent);
  const page = runPage(index);
  const back = () => addressOf({ problem: null });
  let scrolled = 0;
  let looking = null;

  async function route() {
    const id = stateOf().get("problem");
    if (id === null) {
      app.replaceChildren(...page.table().filter(Boolean));
      document.title = index.title;
      window.scrollTo(0, scrolled);
      if (looking !== null) page.list.select(page.list.selected);
      looking = null;
      return;
    }
    if (looking === null) scrolled = window.scrollY;
    looking = id;
    const place = page.list.at(id);
    if (place.i < 0) throw new Error(`no problem ${id}`);
    const shown = await page.problem(place, back());
    if (looking !== id) return;
    app.replaceChildren(shown);
    document.title = `${id} · ${index.title}`;
    window.scrollTo(0, 0);
  }

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) return;
    const links = { j: "next", ArrowRight: "next", k: "previous", ArrowLeft: "previous" };
    if (looking === null) {
      if (event.target.closest("button, a, summary") && event.key === "Enter") return;
      if (page.list.key(event)) event.preventDefault();
    } else if (event.key in links) {
      const to = page.list.at(looking)[links[event.key]];
      if (to !== null) location.replace(to);
    } else if (event.key === "Escape" || event.key === "u") {
      location.hash = back();
    }
  }

  window.addEventListener("hashchange", () => route().catch(failed));
  document.addEventListener("keydown", key);
  await route();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
  document.documentElement.dataset.took = String(Math.round(performance.now() - began));
}

main().catch(failed);
