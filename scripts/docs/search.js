// Search that also works in pages opened from a folder, where a browser lets no script fetch a file: the index is a script itself
// (hooks.py writes it), loaded when somebody begins to search.
/* global base_url, searchIndex */

(() => {
  const field = document.getElementById("mkdocs-search-query");
  const results = document.getElementById("mkdocs-search-results");
  const words = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_@.-]+/u).filter(Boolean);
  let ready = null;

  function load() {
    ready ??= new Promise((loaded) => {
      const script = document.createElement("script");
      script.src = `${base_url}/search_index.js`;
      script.onload = loaded;
      document.head.append(script);
    });
    return ready;
  }

  function matches(query) {
    const wanted = words(query);
    const found = searchIndex.docs.map((doc) => {
      const [title, text] = [doc.title.toLowerCase(), doc.text.toLowerCase()];
      const hits = wanted.map((word) => (title.includes(word) ? 20 : 0) + Math.min(text.split(word).length - 1, 10));
      return { doc, score: hits.includes(0) ? 0 : hits.reduce((a, b) => a + b, 0), at: text.indexOf(wanted[0]) };
    });
    // A page and its first section have one title: the better of the two is enough.
    const listed = new Map();
    for (const each of found.filter((hit) => hit.score).sort((a, b) => b.score - a.score)) {
      const key = `${each.doc.location.split("#")[0]} ${each.doc.title}`;
      if (!listed.has(key)) listed.set(key, each);
    }
    return [...listed.values()].slice(0, 30);
  }

  function row({ doc, at }) {
    const article = document.createElement("article");
    const link = document.createElement("a");
    [link.href, link.textContent] = [`${base_url}/${doc.location}`, doc.title];
    const begin = Math.max(0, at - 60);
    article.append(document.createElement("h3"), document.createElement("p"));
    article.firstChild.append(link);
    article.lastChild.textContent = (begin ? "… " : "") + doc.text.slice(begin, begin + 200);
    return article;
  }

  async function search() {
    await load();
    const found = field.value.trim().length > 1 ? matches(field.value) : [];
    results.replaceChildren(...(found.length ? found.map(row) : [field.value.trim() ? results.dataset.noResultsText : ""]));
  }

  field.addEventListener("focus", load);
  field.addEventListener("input", search);
  field.form.addEventListener("submit", (event) => event.preventDefault());
})();
