//! Comparison of the two configurations.

/// Key of the configuration that both members must have in common, and the hash of its value. The value
/// itself is never sent: it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigKey {
    /// Path of the key, such as `pools.res.addresses`; at most 255 bytes.
    pub name: String,
    /// Hash of its value.
    pub hash: u64,
}

impl ConfigKey {
    /// Longest name, characters.
    const NAME_LEN_MAX: usize = 200;

    /// Creates a key with the hash of its value. A name that is too long is cut.
    pub fn new(name: &str, value: &str) -> ConfigKey {
        let name = name.chars().take(ConfigKey::NAME_LEN_MAX).collect();
        ConfigKey { name, hash: hash(value.bytes()) }
    }
}

/// Difference between two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyDifference {
    /// Only this member has the key.
    Here(String),
    /// Only the other member has the key.
    There(String),
    /// The values differ.
    Value(String),
}

/// Keys that a greeting has at most.
pub(super) const KEYS_MAX: usize = 4096;

/// Returns the differences, in the order of the keys' names. Both lists must be sorted.
pub fn differences(here: &[ConfigKey], there: &[ConfigKey]) -> Vec<KeyDifference> {
    let find = |keys: &[ConfigKey], name: &str| {
        keys.binary_search_by(|key| key.name.as_str().cmp(name)).ok().map(|place| keys[place].hash)
    };
    let mut found: Vec<(&str, KeyDifference)> = Vec::new();
    for key in here {
        match find(there, &key.name) {
            None => found.push((&key.name, KeyDifference::Here(key.name.clone()))),
            Some(hash) if hash != key.hash => {
                found.push((&key.name, KeyDifference::Value(key.name.clone())));
            }
            Some(_) => {}
        }
    }
    for key in there.iter().filter(|key| find(here, &key.name).is_none()) {
        found.push((&key.name, KeyDifference::There(key.name.clone())));
    }
    found.sort_by_key(|(name, _)| *name);
    found.into_iter().map(|(_, difference)| difference).collect()
}

/// Returns the revision that a list of keys stands for: a hash over names and hashes.
pub fn revision(keys: &[ConfigKey]) -> u64 {
    hash(keys.iter().flat_map(|key| key.name.bytes().chain([0]).chain(key.hash.to_be_bytes())))
}

/// FNV-1a. It distinguishes configurations of one operator, and is no protection against somebody who chooses
/// values.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
