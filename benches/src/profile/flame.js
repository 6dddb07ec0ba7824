// A click on a call shows it alone, with all that it called; one on the background shows everything.
(function () {
  var svg = document.currentScript.ownerSVGElement, full = +svg.getAttribute("data-width");
  var calls = Array.prototype.slice.call(svg.querySelectorAll("g.call")).map(function (g) {
    return { g: g, rect: g.querySelector("rect"), text: g.querySelector("text"), name: g.getAttribute("data-name"),
             x: +g.getAttribute("data-x"), w: +g.getAttribute("data-w"), row: +g.getAttribute("data-row") };
  });
  function show(x, w) {
    calls.forEach(function (call) {
      var left = Math.max(call.x, x), right = Math.min(call.x + call.w, x + w), scale = full / w;
      var width = (right - left) * scale, at = (left - x) * scale;
      call.g.style.display = width > 0.3 ? "" : "none";
      call.rect.setAttribute("x", at);
      call.rect.setAttribute("width", Math.max(width - 0.5, 0.1));
      call.text.setAttribute("x", at + 3);
      var letters = Math.floor((width - 6) / 6.3);
      call.text.textContent = letters < 3 ? "" : call.name.length <= letters ? call.name : call.name.slice(0, letters - 1) + "…";
    });
  }
  calls.forEach(function (call) {
    call.g.addEventListener("click", function (event) { event.stopPropagation(); show(call.x, call.w); });
  });
  svg.addEventListener("click", function () { show(0, full); });
})();
