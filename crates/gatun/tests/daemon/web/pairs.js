// Sample states of a pair; returns for each what the picture shows: level, link, boxes.
return (async () => {
  const { Pair } = await import('/web/pair.js');
  const watch = new EventTarget();
  const pair = new Pair(watch);
  const shard = (owner, ...addresses) => ({ owner, epoch: 1, addresses });
  const counters = { sessions_told: 1, sessions_received: 2, refused: [{ name: 'full', value: 3 }] };
  const usual = { member: 'b', peer_name: 'first', peer_gone: false, connected_for_ms: 61000, differences: [], reason: null, counters };
  const in_days = (days) => Math.round(Date.now() / 1000 + days * 86400);
  const see = (peer) => {
    watch.now = { peer };
    pair.show();
    const picture = document.getElementById('pair-picture');
    if (document.getElementById('pair').hidden) return null;
    const boxes = [...picture.querySelectorAll('.box')].map((box) => [box.querySelector('h3').textContent, ...[...box.querySelectorAll('li')].map((li) => li.textContent)]);
    return [picture.dataset.level, picture.querySelector('.link-text').textContent, ...boxes, document.getElementById('pair-more').textContent];
  };
  const found = [
    see({ ...usual, state: 'synced', shards: [shard('a', '192.0.2.0-192.0.2.7'), shard('b', '192.0.2.8')] }),
    see({ ...usual, state: 'alone', connected_for_ms: null, reason: 'connection refused', peer_gone: true, shards: [shard('b', '192.0.2.0')] }),
    see({ ...usual, state: 'synced', shards: [], clock_difference_ms: -1001, certificate_end_s: in_days(3.5) }),
    see({ ...usual, state: 'synced', shards: [], clock_difference_ms: 86400000, certificate_end_s: in_days(-1) }),
    see({ ...usual, state: 'synced', shards: [], clock_difference_ms: 1000, certificate_end_s: in_days(14.5) }),
    see({ ...usual, state: 'off', member: null, shards: [] }),
  ];
  return found;
})();
