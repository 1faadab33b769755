//! Access tokens for the API over TCP; only their hashes are stored.
//!
//! ```text
//!   # name  role  SHA-256 of the token
//!   grafana read  9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! ```
//! A token is 256 random bits, so its plain hash cannot be inverted. A slow password hash would only slow the
//! daemon.

use gatun_api::hex;
use gatun_api::paths::Permission;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq as _;

/// Most tokens in a file.
const TOKENS_MAX: usize = 1000;
/// Most bytes in a name.
const NAME_LEN_MAX: usize = 64;
/// Prefix that identifies a leaked token.
const PREFIX: &str = "gatun_";

/// A SHA-256.
pub type Hash = [u8; 32];

/// Rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read.
    Read,
    /// Read, change, and see packets' contents.
    Write,
    /// Read, and ask the log who had a port at a time.
    Audit,
}

impl Role {
    /// Returns the role's name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Audit => "audit",
        }
    }

    /// Returns true if the role is sufficient.
    pub(crate) fn allows(self, needs: Permission) -> bool {
        match needs {
            Permission::Read => true,
            Permission::Write => self == Role::Write,
            Permission::Audit => self == Role::Audit,
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let found = [Role::Read, Role::Write, Role::Audit].into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("'{text}' is not one of read, write, audit"))
    }
}

/// Known token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Name of the token.
    pub name: String,
    /// Rights of the token.
    pub role: Role,
    /// SHA-256 of the secret.
    pub hash: Hash,
}

/// All known tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// Iterates in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.0.iter()
    }

    /// Creates a token and returns its secret, which is not stored.
    ///
    /// # Errors
    /// Returns an error if the name is taken or invalid, or if there are no random numbers.
    pub fn add(&mut self, name: &str, role: Role) -> Result<String, String> {
        let mut random = [0; 32];
        SystemRandom::new().fill(&mut random).map_err(|_| "cannot get random numbers")?;
        let secret = format!("{PREFIX}{}", hex::encode(&random));
        self.push(Token { name: name.to_owned(), role, hash: hash(&secret) })?;
        Ok(secret)
    }

    /// Removes the token of this name; returns true if there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|token| token.name != name);
        self.0.len() < before
    }

    /// Finds the token with this secret. The time it takes reveals only the number of tokens.
    pub fn find(&self, secret: &[u8]) -> Option<&Token> {
        let hash = sha256(secret);
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.ct_eq(&hash)) {
                found = Some(token);
            }
        }
        found
    }

    /// Returns true if a token has this hash.
    pub fn contains(&self, hash: &Hash) -> bool {
        self.0.iter().any(|token| bool::from(token.hash.ct_eq(hash)))
    }

    fn push(&mut self, token: Token) -> Result<(), String> {
        let name = &token.name;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
        if !(1..=NAME_LEN_MAX).contains(&name.len()) || !name.chars().all(is_name) {
            let form = "1 to 64 letters, digits and _-.@";
            return Err(format!(
                "'{}' is not a valid name: use {form}",
                name.chars().take(80).collect::<String>()
            ));
        }
        if self.0.iter().any(|other| other.name == *name) {
            return Err(format!("a token named '{name}' exists already"));
        }
        if self.0.len() >= TOKENS_MAX {
            return Err(format!("there are {TOKENS_MAX} tokens already"));
        }
        self.0.push(token);
        Ok(())
    }
}

impl FromStr for Tokens {
    type Err = String;

    /// # Errors
    /// Returns an error with the number of the first invalid line.
    fn from_str(text: &str) -> Result<Tokens, String> {
        let mut tokens = Tokens::default();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let read = match (words.next(), words.next(), words.next(), words.next()) {
                (Some(name), Some(role), Some(hash), None) => role.parse().and_then(|role| {
                    let hash = hex::decode_hash(hash).ok_or("the hash is not 64 hexadecimal digits")?;
                    tokens.push(Token { name: name.to_owned(), role, hash })
                }),
                _ => Err("expected NAME ROLE HASH".to_owned()),
            };
            read.map_err(|why| format!("line {}: {why}", number + 1))?;
        }
        Ok(tokens)
    }
}

impl fmt::Display for Tokens {
    /// Writes the tokens in the file's format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "# name role SHA-256: written by `gatun token`, read by the daemon at its start and reload\n",
        )?;
        self.0.iter().try_for_each(|t| writeln!(f, "{} {} {}", t.name, t.role.name(), hex::encode(&t.hash)))
    }
}

/// SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> Hash {
    digest(&SHA256, bytes).as_ref().try_into().unwrap_or_default()
}

fn hash(secret: &str) -> Hash {
    sha256(secret.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_secret_which_the_file_lacks() {
        let mut tokens = Tokens::default();
        let reads = tokens.add("grafana", Role::Read).unwrap();
        let writes = tokens.add("ops@noc", Role::Write).unwrap();
        assert_eq!((reads.len(), reads == writes), (PREFIX.len() + 64, false));
        let text = tokens.to_string();
        assert!(!text.contains(&reads[PREFIX.len()..]) && !text.contains(&writes[PREFIX.len()..]));
        let read: Tokens = text.parse().unwrap();
        assert_eq!(read, tokens);
        assert_eq!(read.find(reads.as_bytes()).map(|t| (&t.name[..], t.role)), Some(("grafana", Role::Read)));
        assert_eq!(read.find(writes.as_bytes()).map(|t| t.role), Some(Role::Write));
        let hash = hex::encode(&tokens.0[0].hash);
        for wrong in ["", "gatun_", &reads[1..], &reads[..reads.len() - 1], &format!("{reads} "), &hash] {
            assert_eq!(read.find(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(tokens.remove("grafana") && !tokens.remove("grafana"));
        assert_eq!(tokens.find(reads.as_bytes()), None);
    }

    #[test]
    fn the_hash_is_plain_sha256() {
        // As the documentation computes it: `printf %s TOKEN | sha256sum`.
        assert_eq!(
            hex::encode(&hash("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(hex::decode_hash(&hex::encode(&hash("abc"))), Some(hash("abc")));
    }

    #[test]
    fn invalid_token_files_are_refused_with_the_line() {
        let hash = "0".repeat(64);
        for (text, wanted) in [
            ("a read".to_owned(), "line 1: expected NAME ROLE HASH"),
            (format!("# fine\n\na admin {hash}"), "line 3: 'admin' is not one of read, write, audit"),
            (format!("a read {}", &hash[1..]), "the hash is not 64 hexadecimal digits"),
            (format!("a read {}g", &hash[1..]), "the hash is not 64 hexadecimal digits"),
            (format!("a read {hash} x"), "expected NAME ROLE HASH"),
            (format!("a read {hash}\na write {hash}"), "line 2: a token named 'a' exists already"),
            (format!("a/b read {hash}"), "'a/b' is not a valid name"),
            (
                (0..=TOKENS_MAX).map(|n| format!("n{n} read {hash}\n")).collect(),
                "line 1001: there are 1000 tokens already",
            ),
        ] {
            let why = text.parse::<Tokens>().unwrap_err();
            assert!(why.contains(wanted), "{why}");
        }
        assert_eq!("".parse(), Ok(Tokens::default()));
    }
}
