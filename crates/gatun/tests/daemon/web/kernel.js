// Sample states of the kernel fast path; returns for each what the page shows: fill, words, reasons.
return (async () => {
  const { FastPath } = await import('/web/fastpath.js');
  const watch = new EventTarget();
  const fastpath = new FastPath(watch);
  const counter = (name, value) => ({ name, value, help: `Help of ${name}.` });
  const one = (passed, xdp_passed = []) => ({ name: 'lab', translated: 5000, dropped: 0, xdp_translated: 0, passed, xdp_passed });
  const usual = { state: 'on', why: null, error: null, sessions: 900, sessions_max: 1000, installed: 1200, installed_per_second: 250, refused_full: 7, refused_other: 0 };
  const see = (at, state) => {
    watch.now = { at, fastpath: state };
    fastpath.show();
    const section = document.getElementById('fastpath');
    if (section.hidden) return null;
    const text = (id) => document.getElementById(id).textContent;
    const fill = section.querySelector('.meter');
    const rows = [...section.querySelectorAll('#fastpath-reasons tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent));
    return [[fill.dataset.level, fill.getAttribute('aria-valuetext')], text('fastpath-sub'), text('fastpath-more'), rows];
  };
  const first = one([counter('no_entry', 100), counter('pending', 90), counter('fragment', 80), counter('closing', 70), counter('hop_limit', 0)]);
  const later = one([counter('no_entry', 100), counter('pending', 90), counter('fragment', 80), counter('closing', 270), counter('hop_limit', 10)]);
  const by_xdp = { ...one([], [counter('no_next_hop', 12)]), dropped: 1, xdp_translated: 4000 };
  return [
    see(1000, { ...usual, instances: [first] }),
    see(3000, { ...usual, instances: [later, one([counter('no_entry', 40)])] }),
    see(5000, { ...usual, refused_full: 0, instances: [by_xdp] }),
    see(6000, { ...usual, state: 'unavailable', why: 'somebody has detached it', sessions: 0, instances: [] }),
    see(7000, { ...usual, state: 'off', instances: [] }),
    see(8000, null),
  ];
})();
