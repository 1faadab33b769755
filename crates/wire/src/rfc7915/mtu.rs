//! The MTU fields of Packet Too Big and Fragmentation Needed (RFC 7915 4.2, 5.2), and what a packet,
//! or each segment of a super-packet, measures on the wire.
