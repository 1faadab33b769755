//! IP packets for tests, built and checked by etherparse, which shares no code with Gatun.
//!
//! [`Message`] is what follows the IP header; [`V4`] and [`V6`] are the headers, with every field that tests
//! vary. [`text`] has one-line forms with addresses as text, and [`in_place`] writes packets at a generator's
//! speed.
//!
//! ```
//! use gatun_testkit::packet::{Message, V6, check, text};
//! let (client, server) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
//! let packet = V6 { hop_limit: 9, ..V6::new(client, server) }.packet(&Message::udp(5000, 53, b"query"));
//! check(&packet);
//! assert_eq!(packet[7], 9);
//! assert_eq!(text::udp6("2001:db8::1", 5000, "2001:db8::2", 53, b"query")[40..], packet[40..]);
//! ```

mod check;
mod headers;
pub mod in_place;
mod message;
pub mod text;

pub use check::{Endpoints, check, endpoints};
pub use headers::{V4, V6};
pub use message::Message;
