// Sample states of a daemon from second 0 on; returns the verdicts about them: level, sentence, findings.
return (async () => {
  const { Judge } = await import('/web/verdict.js');
  const { Between } = await import('/web/watch.js');
  const use = (used) => ({ used, total: 1000 });
  const look = (second, udp, troubles, refused) => ({
    at: second * 1000,
    status: { troubles, sessions: 1, sessions_max: 100, received: { packets: second * 100 } },
    pools: [{ name: 'homes', tcp: use(0), udp: use(udp), icmp: use(0), refused }],
    drops: [], workers: [],
  });
  const judges = new Judge();
  let before;
  const see = (...parts) => {
    const now = look(...parts);
    const rates = () => new Between(before, now);
    const { level, text, found } = judges.see({ now, rates });
    before = now;
    return [level, text, found.length];
  };
  const full = (n) => [{ urgency: 'bad', part: 'log', what: `the log cannot be written: ${n} records waiting` }];
  return [
    see(0, 100, [], 0), see(1, 100, full(7), 0), see(2, 100, full('1,234'), 0), see(3, 100, [], 0), see(31, 100, [], 0),
    see(33, 100, [], 0), see(40, 960, [], 0), see(41, 940, [], 0), see(42, 915, [], 0), see(43, 790, [], 0),
    see(44, 760, [], 3), see(80, 100, [], 3),
  ];
})();
