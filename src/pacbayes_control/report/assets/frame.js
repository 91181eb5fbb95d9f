// The button for the colours, and the sections: the link of the one that is read is marked.
"use strict";

(() => {
  const button = document.getElementById("theme"), order = ["auto", "light", "dark"];
  const label = () => { button.textContent = `Colours: ${theme.get()}`; };
  button.hidden = false;
  label();
  button.addEventListener("click", () => {
    const choice = order[(order.indexOf(theme.get()) + 1) % order.length];
    theme.set(choice);
    theme.store(choice);
    label();
    document.dispatchEvent(new Event("themechange"));
  });

  const list = document.querySelector("nav ul");
  const links = new Map([...list.querySelectorAll("a")].map((link) =>
    [document.getElementById(link.hash.slice(1)), link]));
  const sections = [...links.keys()];
  const line = 0.3;  // of the window's height: the section that crosses it is read
  let current = null;

  function readNow() {
    const bottom = document.documentElement.getBoundingClientRect().bottom <= innerHeight + 2;
    const named = document.getElementById(location.hash.slice(1));
    // The last sections never reach the line: there, the one that a link has led to.
    if (bottom && links.has(named) && named.getBoundingClientRect().top >= 0) return named;
    if (bottom && scrollY > 0) return sections.at(-1);
    const begun = sections.filter((one) => one.getBoundingClientRect().top <= line * innerHeight);
    return begun.at(-1) ?? sections[0];
  }

  function mark() {
    const now = readNow();
    if (now === current) return;
    links.get(current)?.removeAttribute("aria-current");
    const link = links.get(now);
    link.setAttribute("aria-current", "location");
    list.scrollLeft = link.offsetLeft - (list.clientWidth - link.offsetWidth) / 2;
    current = now;
  }

  if (!sections.length) return;
  const crossing = new IntersectionObserver(mark, { rootMargin: `-${100 * line}% 0px -${100 - 100 * line}% 0px` });
  sections.forEach((one) => crossing.observe(one));
  new IntersectionObserver(mark, { threshold: [0, 0.5, 1] }).observe(document.querySelector("footer"));
  addEventListener("hashchange", mark);
})();
