// Sample states of a fast path; returns for each what the page shows below the traffic.
return (async () => {
  const { Now } = await import('/web/now.js');
  const none = { packets: 0, bytes: 0 };
  const counts = { received: none, dropped: none, rejected: none, dropped_silently: none };
  const usual = { ...counts, forwarded: { packets: 20, bytes: 2000 }, sessions: 1, sessions_max: 0, subscribers: 1, bindings: 1 };
  const values = { bits: 0, packets: 0, lost: 0, created: 0 };
  const see = (status) => {
    const watch = { now: { time: 0, status: { ...usual, ...status } }, points: [{ values }], rates: () => ({ of: () => 0 }) };
    Now.prototype.show.call({ watch, plots: [], judge: () => {} });
    return document.getElementById('bits-sub').textContent;
  };
  return [
    see({ fast_path: 'none', offloaded: none }),
    see({ fast_path: 'kernel', offloaded: { packets: 5, bytes: 500 } }),
    see({ fast_path: 'switches', offloaded: { packets: 15, bytes: 1500 } }),
  ];
})();
