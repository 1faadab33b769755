// Sample states of a cluster; returns for each what the picture shows: level, nodes with their shards, words.
return (async () => {
  const { Cluster } = await import('/web/cluster.js');
  const watch = new EventTarget();
  const cluster = new Cluster(watch);
  const shard = (number, owner, backup, phase) => ({ number, owner, backup, phase, addresses: [`192.0.2.${number}`] });
  const node = (name, more) => ({ name, is_this: name === 'a', is_registered: true, is_gone: false, is_drained: false, absent_ms: null, backed: 1, connection: null, ...more });
  const see = (state) => {
    watch.now = { cluster: state };
    cluster.show();
    if (document.getElementById('cluster').hidden) return null;
    const picture = document.getElementById('cluster-picture');
    const boxes = [...picture.querySelectorAll('.box')].map((box) => [
      box.dataset.level, box.querySelector('h3').textContent, box.querySelector('p').textContent,
      ...[...box.querySelectorAll('li')].map((cell) => `${cell.textContent} ${cell.dataset.level} ${cell.title}`),
    ]);
    return [picture.dataset.level, ...boxes, document.getElementById('cluster-sub').textContent, document.getElementById('cluster-more').textContent];
  };
  const usual = { name: 'edge', state: 'registered', reason: null, etcd_error: null };
  const shards = [shard(0, 'a', 'b', 'ready'), shard(1, 'b', 'a', 'filling')];
  return [
    see({ ...usual, nodes: [node('a'), node('b', { connection: { connected_for_ms: 5, reason: null, differences: [] } })], shards }),
    see({
      ...usual, state: 'without-etcd', etcd_error: 'no answer',
      nodes: [node('a'), node('b', { is_registered: false, absent_ms: 61000 })],
      shards: [shard(0, 'b', null, null), shard(1, null, null, null)],
    }),
    see({ ...usual, name: null, state: 'off', nodes: [], shards: [] }),
  ];
})();
