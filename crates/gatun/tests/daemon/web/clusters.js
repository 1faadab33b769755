// Sample states of a cluster; returns for each what the page shows: level, nodes with their shards, words.
return (async () => {
  const { Cluster } = await import('/web/cluster.js');
  const watch = new EventTarget();
  const cluster = new Cluster(watch);
  // No daemon answers these requests: they are those of a node of a cluster.
  const real = window.fetch;
  const answers = { '/v1/cluster/revisions': [], '/v1/cluster/events': { events: [] } };
  window.fetch = (url, options) => {
    const answer = answers[url.pathname];
    if (!answer) return real(url, options);
    return Promise.resolve(answer.error ? Response.json(answer, { status: 409 }) : Response.json(answer));
  };
  const shard = (number, owner, backup, phase) => ({ number, owner, backup, phase, addresses: [`192.0.2.${number}`] });
  const node = (name, more) => ({ name, is_this: name === 'a', is_registered: true, is_configured: true, is_gone: false, is_drained: false, absent_ms: null, backed: 1, connection: null, ...more });
  const words = (id) => document.getElementById(id).textContent;
  const see = (state) => {
    watch.now = { cluster: state };
    cluster.show();
    if (document.getElementById('cluster').hidden) return null;
    const picture = document.getElementById('cluster-picture');
    const boxes = [...picture.querySelectorAll('.box')].map((box) => [
      box.dataset.level, box.querySelector('h3').textContent, box.querySelector('p').textContent,
      ...[...box.querySelectorAll('li')].map((cell) => `${cell.textContent} ${cell.dataset.level} ${cell.title}`),
      ...[...box.querySelectorAll('button')].filter((one) => !one.hidden).map((one) => `${one.textContent}: ${one.ariaLabel}`),
    ]);
    return [picture.dataset.level, ...boxes, words('cluster-sub'), words('cluster-more')];
  };
  // Configuration, revisions, and events.
  const past = async (revisions, events) => {
    Object.assign(answers, { '/v1/cluster/revisions': revisions, '/v1/cluster/events': events });
    await cluster.past.read();
    const rows = [...document.querySelectorAll('#cluster-revisions tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent));
    const lines = [...document.querySelectorAll('#cluster-events li')].map((line) => [...line.children].map((one) => one.textContent));
    return [words('cluster-revision'), rows, words('cluster-revisions-error'), lines, words('cluster-events-error')];
  };
  const usual = { name: 'edge', state: 'registered', reason: null, etcd_error: null };
  const shards = [shard(0, 'a', 'b', 'ready'), shard(1, 'b', 'a', 'filling')];
  const connection = { connected_for_ms: 5, reason: null, differences: [] };
  const is_at = (stage, more) => ({ number: 13, before: 12, stage, seconds_left: null, needs_confirmation: true, changed_by: 'uid 0', reason: null, ...more });
  const run = (number, more) => ({ revision: { number, is_trial: false, differs: false, reason: null, ...more } });
  const at = (day, hour) => new Date(2026, 0, day, hour).getTime();
  const kept = { number: 13, applied_at: new Date(at(31, 3)).toISOString(), applied_by: 'uid 0', asked_node: 'a', bytes: 900, sha256: '', outcome: 'confirmed by uid 0', nodes: ['a', 'b'] };
  const events = { events: [{ at_ms: at(1, 2), what: 'node b is away' }, { at_ms: at(31, 3), what: 'node b is here' }] };
  const refusal = { error: 'etcd does not answer', hint: '' };
  const found = [
    see({ ...usual, nodes: [node('a'), node('b', { connection })], shards }),
    await past([], { events: [] }),
    see({
      ...usual, state: 'without-etcd', etcd_error: 'no answer',
      nodes: [node('a'), node('b', { is_registered: false, absent_ms: 61000 })],
      shards: [shard(0, 'b', null, null), shard(1, null, null, null)],
    }),
  ];
  const off = (ms) => ({ connection: { ...connection, clock_difference_ms: ms } });
  const in_days = (days) => Math.round(Date.now() / 1000 + days * 86400);
  found.push(
    see({ ...usual, nodes: [node('b', off(-3600000)), node('c', off(900)), node('d', off(2000))], shards: [], certificate_end_s: in_days(1.5) }),
    see({ ...usual, nodes: [], shards: [], certificate_end_s: in_days(-3) }),
  );
  watch.access = { may_write: true };
  found.push(
    // Only a token with write access offers to drain.
    see({
      ...usual, configuration: is_at('trial', { seconds_left: 20 }), shards,
      nodes: [node('a', run(13, { is_trial: true })), node('b', { is_drained: true, connection, ...run(12, { differs: true }) })],
    }),
    await past([kept], events),
    see({
      ...usual, configuration: is_at('confirmed'), shards: [],
      nodes: [node('a', run(13)), node('b', { is_drained: true, connection, ...run(12, { differs: true, reason: 'disk full' }) }), node('c', { is_registered: false }), node('d', { is_registered: false, is_drained: true, ...run(null) })],
    }),
    // What was read before stays.
    await past(refusal, refusal),
    see({ ...usual, configuration: is_at('withdrawn', { reason: 'not confirmed' }), shards: [], nodes: [] }),
    await past([], { events: [] }),
    see({ ...usual, name: null, state: 'off', nodes: [], shards: [] }),
  );
  window.fetch = real;
  return found;
})();
