//! Nodes that should have each shard: weighted rendezvous hashing with a bound on the load of a node.
//!
//! Each node has a score for each shard, and the shard goes to the node with the highest one. A new node
//! changes no other score, so few shards move. A node owns at most a quarter more than its share: a shard of
//! a full node goes to the next one. The same holds for the shards that it backs up, as long as another node
//! has room: of two nodes, each backs up all shards of the other one.

use std::cmp::Ordering;

/// Node that shards may go to.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<N> {
    /// Node.
    pub node: N,
    /// Name, which determines the scores.
    pub name: String,
    /// Relative capacity, above 0.
    pub weight: u32,
}

/// Nodes that should have a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<N> {
    /// Owner.
    pub first: N,
    /// Backup; `None` if there is no other node.
    pub second: Option<N>,
}

impl<N: PartialEq> Target<N> {
    /// Returns whether a node should have the shard.
    pub fn contains(&self, node: &N) -> bool {
        self.first == *node || self.second.as_ref() == Some(node)
    }
}

/// Part by which a node may exceed its share: a quarter.
const EXCESS: u64 = 4;

/// Returns the nodes of each shard. Candidates are sorted by name, so that all nodes have the same result.
pub fn targets<N: Clone>(candidates: &[Candidate<N>], shards: u16) -> Vec<Target<N>> {
    let mut candidates: Vec<&Candidate<N>> = candidates.iter().filter(|one| one.weight > 0).collect();
    candidates.sort_by(|one, other| one.name.cmp(&other.name));
    let rankings: Vec<Vec<usize>> = (0..shards).map(|shard| ranking(&candidates, shard)).collect();
    let total: u64 = candidates.iter().map(|one| u64::from(one.weight)).sum();
    let limit = |one: &Candidate<N>| {
        let share = u64::from(shards) * u64::from(one.weight);
        (share + share / EXCESS).div_ceil(total) as usize
    };
    let limits: Vec<usize> = candidates.iter().map(|one| limit(one)).collect();
    let owners = assign(&rankings, &limits, &[]);
    let backups = assign(&rankings, &limits, &owners);
    let node = |place: usize| candidates[place].node.clone();
    let all = owners.iter().zip(backups.iter().map(Some).chain(std::iter::repeat(None)));
    all.map(|(first, second)| Target { first: node(*first), second: second.map(|place| node(*place)) })
        .collect()
}

/// Gives each shard to the first node of its ranking that is not full and does not own it already.
fn assign(rankings: &[Vec<usize>], limits: &[usize], owners: &[usize]) -> Vec<usize> {
    let mut loads = vec![0; limits.len()];
    let mut chosen = Vec::with_capacity(rankings.len());
    for (shard, ranking) in rankings.iter().enumerate() {
        let others = || ranking.iter().copied().filter(|place| owners.get(shard) != Some(place));
        let free = others().find(|place| loads[*place] < limits[*place]);
        // With few nodes, all others may be full.
        let Some(place) = free.or_else(|| others().min_by_key(|place| loads[*place])) else { break };
        loads[place] += 1;
        chosen.push(place);
    }
    chosen
}

/// Returns the nodes by their scores for a shard, the highest first.
fn ranking<N>(candidates: &[&Candidate<N>], shard: u16) -> Vec<usize> {
    let mut scores: Vec<(f64, usize)> = candidates
        .iter()
        .enumerate()
        .map(|(place, one)| (score(&one.name, one.weight, shard), place))
        .collect();
    scores.sort_by(|one, other| {
        other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal).then(one.1.cmp(&other.1))
    });
    scores.into_iter().map(|(_, place)| place).collect()
}

/// The highest of such scores belongs to a node with a probability in proportion to its weight.
fn score(name: &str, weight: u32, shard: u16) -> f64 {
    let uniform = ((hash(name, shard) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    f64::from(weight) / -uniform.ln()
}

/// FNV-1a of name and shard, with the bits mixed: names differ in their last byte only.
fn hash(name: &str, shard: u16) -> u64 {
    let bytes = name.bytes().chain([0]).chain(shard.to_be_bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        hash = (hash ^ hash >> 30).wrapping_mul(factor);
    }
    hash ^ hash >> 31
}
