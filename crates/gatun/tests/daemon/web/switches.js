// Sample states of P4 switches; returns for each what the page shows: boxes, fill, words, reasons.
return (async () => {
  const { Switches } = await import('/web/switches.js');
  const watch = new EventTarget();
  const switches = new Switches(watch);
  const counter = (name, value) => ({ name, value });
  const one = { name: 'edge', phase: 'ready', phase_s: 61, why: 'old', sessions: 900, changing: 0, moving: 0, unknown: 0, refused: 2, to_controller: [counter('no_entry', 100)], over_limit: [], dropped: [] };
  const usual = { state: 'on', why: null, error: null, sessions: 900, sessions_max: 1000, installed: 1200, installed_per_second: 250, refused_full: 7, refused_unready: 0, refused_other: 0, packets: 5000 };
  const see = (at, offload) => {
    watch.now = { at, offload };
    switches.show();
    const section = document.getElementById('switches');
    if (section.hidden) return null;
    const text = (id) => document.getElementById(id).textContent;
    const boxes = [...section.querySelectorAll('.box')].map((box) => [box.dataset.level, box.querySelector('h3').textContent, ...[...box.querySelectorAll('li')].map((li) => li.textContent)]);
    const fill = section.querySelector('.meter');
    const rows = [...section.querySelectorAll('#switches-reasons tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent));
    return [boxes, [fill.dataset.level, fill.getAttribute('aria-valuetext')], text('switches-sub'), text('switches-more'), rows];
  };
  const later = { ...one, moving: 12, to_controller: [counter('no_entry', 300)], over_limit: [counter('tcp_flags', 400)] };
  const down = { ...one, phase: 'down', why: 'connection refused', sessions: 0, unknown: 900, refused: 0, to_controller: [] };
  return [
    see(1000, { ...usual, switches: [one] }),
    see(3000, { ...usual, switches: [later] }),
    see(4000, { ...usual, state: 'unavailable', why: 'edge: connection refused', sessions: 0, refused_full: 0, switches: [down] }),
    see(5000, { ...usual, switches: [] }),
  ];
})();
