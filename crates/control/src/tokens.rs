//! Who may ask over TCP: tokens, of which only the hashes are kept.
//!
//! ```text
//!   # name  role  SHA-256 of the token
//!   grafana read  9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! ```
//! A token is 256 random bits, so that its plain hash can be inverted by nobody; a slow one for passwords would only
//! make the daemon slow.

use gatun_api::hex;
use gatun_api::paths::Needs;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq as _;

/// Tokens of a file.
const TOKENS_MAX: usize = 1000;
/// Bytes of a name.
const NAME_LEN_MAX: usize = 64;
/// Prefix of a token, so that one that lies about is recognised.
const PREFIX: &str = "gatun_";

/// A SHA-256.
pub type Hash = [u8; 32];

/// Rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ask.
    Read,
    /// Change as well, and see what packets hold.
    Write,
    /// Ask, and ask the log who had a port at a time.
    Audit,
}

impl Role {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Audit => "audit",
        }
    }

    /// Whether it is enough.
    pub(crate) fn allows(self, needs: Needs) -> bool {
        match needs {
            Needs::Read => true,
            Needs::Write => self == Role::Write,
            Needs::Audit => self == Role::Audit,
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let found = [Role::Read, Role::Write, Role::Audit].into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("'{text}' is none of read, write, audit"))
    }
}

/// One that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Name of the token.
    pub name: String,
    /// Rights of the token.
    pub role: Role,
    /// Of the secret.
    pub hash: Hash,
}

/// All that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// In the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.0.iter()
    }

    /// Makes one for somebody, and gives the secret, which is nowhere kept.
    ///
    /// # Errors
    /// A name that is taken or invalid, or no random numbers.
    pub fn add(&mut self, name: &str, role: Role) -> Result<String, String> {
        let mut random = [0; 32];
        SystemRandom::new().fill(&mut random).map_err(|_| "there are no random numbers")?;
        let secret = format!("{PREFIX}{}", hex::encode(&random));
        self.push(Token { name: name.to_owned(), role, hash: hash(&secret) })?;
        Ok(secret)
    }

    /// Whether there was one of that name, and is no more.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|token| token.name != name);
        self.0.len() < before
    }

    /// The one with this secret. How long that takes tells nothing of those there are but their number.
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

    /// Whether there is one with this hash.
    pub fn contains(&self, hash: &Hash) -> bool {
        self.0.iter().any(|token| bool::from(token.hash.ct_eq(hash)))
    }

    fn push(&mut self, token: Token) -> Result<(), String> {
        let name = &token.name;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
        if !(1..=NAME_LEN_MAX).contains(&name.len()) || !name.chars().all(is_name) {
            let form = "1 to 64 letters, digits and _-.@";
            return Err(format!("'{}' is no name: {form}", name.chars().take(80).collect::<String>()));
        }
        if self.0.iter().any(|other| other.name == *name) {
            return Err(format!("there is a token named '{name}' already"));
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
    /// The first line that is none, by its number.
    fn from_str(text: &str) -> Result<Tokens, String> {
        let mut tokens = Tokens::default();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let read = match (words.next(), words.next(), words.next(), words.next()) {
                (Some(name), Some(role), Some(hash), None) => role.parse().and_then(|role| {
                    let hash = hex::decode_hash(hash).ok_or("the hash is not of 64 hexadecimal digits")?;
                    tokens.push(Token { name: name.to_owned(), role, hash })
                }),
                _ => Err("this is not NAME ROLE HASH".to_owned()),
            };
            read.map_err(|why| format!("line {}: {why}", number + 1))?;
        }
        Ok(tokens)
    }
}

impl fmt::Display for Tokens {
    /// As the file has them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "# name role SHA-256: written by `gatun token`, read by the daemon at its start and reload\n",
        )?;
        self.0.iter().try_for_each(|t| writeln!(f, "{} {} {}", t.name, t.role.name(), hex::encode(&t.hash)))
    }
}

/// Of some bytes.
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
    fn a_token_is_found_by_its_secret_alone_which_the_file_does_not_have() {
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
    fn the_hash_is_what_anybody_computes() {
        // As the documentation says it of `printf %s TOKEN | sha256sum`.
        assert_eq!(
            hex::encode(&hash("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(hex::decode_hash(&hex::encode(&hash("abc"))), Some(hash("abc")));
    }

    #[test]
    fn what_is_no_file_of_tokens_is_refused_with_its_line() {
        let hash = "0".repeat(64);
        for (text, wanted) in [
            ("a read".to_owned(), "line 1: this is not NAME ROLE HASH"),
            (format!("# fine\n\na admin {hash}"), "line 3: 'admin' is none of read, write, audit"),
            (format!("a read {}", &hash[1..]), "the hash is not of 64 hexadecimal digits"),
            (format!("a read {}g", &hash[1..]), "the hash is not of 64 hexadecimal digits"),
            (format!("a read {hash} x"), "this is not NAME ROLE HASH"),
            (format!("a read {hash}\na write {hash}"), "line 2: there is a token named 'a' already"),
            (format!("a/b read {hash}"), "'a/b' is no name"),
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
