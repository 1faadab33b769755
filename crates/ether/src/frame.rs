//! The Ethernet header and its VLAN tags.
//!
//! ```text
//!   0 destination | 6 source | 12 type | 14 ...                              untagged
//!   0 destination | 6 source | 12 0x8100 | 14 priority, VLAN | 16 type | 18  802.1Q
//!   0 destination | 6 source | 12 0x88a8 | 14 ... | 16 0x8100 | ... | 22     QinQ
//! ```

use crate::bytes::{array, mac, put};
use crate::{Mac, Tag};

/// Header length in bytes without tags.
pub(crate) const LEN: usize = 14;
/// Length of a tag in bytes.
const TAG_LEN: usize = 4;
/// Largest number of tags in a port's frames.
pub(crate) const TAGS_MAX: usize = 2;
/// Longest header.
pub(crate) const LEN_MAX: usize = LEN + TAGS_MAX * TAG_LEN;
/// Bits of a tag that hold the VLAN (IEEE 802.1Q 9.6).
const VLAN_MASK: u16 = 0x0fff;
const SOURCE: usize = 6;

/// Ethertypes.
pub(crate) mod kind {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const ARP: u16 = 0x0806;
    pub(crate) const IPV6: u16 = 0x86dd;
}

/// Header of a received frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) dst: Mac,
    pub(crate) src: Mac,
    /// Tags, outermost first, without priority tags (VLAN 0).
    pub(crate) tags: Tags,
    pub(crate) kind: u16,
    /// Header length: the offset of the payload.
    pub(crate) len: usize,
}

/// VLAN tags of a frame, at most two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    tags: [Option<(u16, u16)>; TAGS_MAX],
}

impl Tags {
    pub(crate) fn new(tags: &[Tag]) -> Tags {
        let mut all = Tags::default();
        tags.iter().for_each(|tag| all.push(tag.kind, tag.vlan));
        all
    }

    fn push(&mut self, kind: u16, vlan: u16) {
        if let Some(free) = self.tags.iter_mut().find(|t| t.is_none()) {
            *free = Some((kind, vlan));
        }
    }
}

impl Header {
    /// Reads the header. `None` if the frame is too short.
    #[inline]
    pub(crate) fn read(frame: &[u8]) -> Option<Header> {
        let head: [u8; LEN] = array(frame, 0)?;
        let kind = u16::from_be_bytes(array(&head, 12)?);
        let header =
            Header { dst: mac(&head, 0)?, src: mac(&head, SOURCE)?, tags: Tags::default(), kind, len: LEN };
        if is_tag(kind) { header.read_tags(frame) } else { Some(header) }
    }

    fn read_tags(mut self, frame: &[u8]) -> Option<Header> {
        for _ in 0..TAGS_MAX {
            if !is_tag(self.kind) {
                break;
            }
            let vlan = u16::from_be_bytes(array(frame, self.len)?) & VLAN_MASK;
            // VLAN 0 means a priority without a VLAN (IEEE 802.1Q 6.9.1).
            if vlan != 0 {
                self.tags.push(self.kind, vlan);
            }
            self.kind = u16::from_be_bytes(array(frame, self.len + 2)?);
            self.len += TAG_LEN;
        }
        Some(self)
    }
}

fn is_tag(kind: u16) -> bool {
    kind == Tag::CUSTOMER || kind == Tag::SERVICE
}

/// Expected header of frames to a port. Nearly all frames match it with a few comparisons; [`Header::read`]
/// parses the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderMatch {
    /// MAC of the port; its tags follow.
    mac: u64,
    tags: u64,
    tags_mask: u64,
    /// Header length: the offset of the payload.
    pub(crate) len: usize,
}

/// Bit of a group MAC in such a word.
const GROUP: u64 = 1;
/// Mask of the six bytes of a MAC in a little-endian word.
const MAC_MASK: u64 = (1 << 48) - 1;

impl HeaderMatch {
    pub(crate) fn new(mac: Mac, tags: &[Tag]) -> HeaderMatch {
        let mut bytes = [0; 8];
        let mut mask = [0; 8];
        for (i, tag) in tags.iter().take(TAGS_MAX).enumerate() {
            put(&mut bytes, i * TAG_LEN, &tag.kind.to_be_bytes());
            put(&mut bytes, i * TAG_LEN + 2, &tag.vlan.to_be_bytes());
            put(&mut mask, i * TAG_LEN, &[0xff, 0xff]);
            put(&mut mask, i * TAG_LEN + 2, &VLAN_MASK.to_be_bytes());
        }
        let [a, b, c, d, e, f] = mac.0;
        HeaderMatch {
            mac: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            tags: u64::from_le_bytes(bytes),
            tags_mask: u64::from_le_bytes(mask),
            len: LEN + tags.len().min(TAGS_MAX) * TAG_LEN,
        }
    }

    /// Ethertype of a frame to this port from another device. 0 for any other frame.
    #[inline]
    pub(crate) fn kind_of(&self, frame: &[u8]) -> u16 {
        // Every frame with an IP packet has at least 20 bytes.
        let Some(head) = frame.first_chunk::<20>() else { return 0 };
        let word = |at: usize| array(head, at).map_or(0, u64::from_le_bytes);
        let (dst, src) = (word(0) & MAC_MASK, word(SOURCE) & MAC_MASK);
        let ours = dst == self.mac && word(SOURCE * 2) & self.tags_mask == self.tags;
        let from_other = src & GROUP == 0 && src != 0 && src != self.mac;
        match ours && from_other {
            true => array(frame, self.len - 2).map_or(0, u16::from_be_bytes),
            false => 0,
        }
    }
}

/// Addresses a received frame as its reply. Tags stay.
pub(crate) fn write_reply_header(frame: &mut [u8], to: Mac, from: Mac) {
    put(frame, 0, &to.0);
    put(frame, SOURCE, &from.0);
}

/// Header of frames from a port, without the destination and the ethertype.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    bytes: [u8; LEN_MAX],
    pub(crate) len: usize,
}

impl Template {
    pub(crate) fn new(src: Mac, tags: &[Tag]) -> Template {
        let mut bytes = [0; LEN_MAX];
        let tags = tags.get(..TAGS_MAX).unwrap_or(tags);
        put(&mut bytes, SOURCE, &src.0);
        for (i, tag) in tags.iter().enumerate() {
            put(&mut bytes, 12 + i * TAG_LEN, &tag.kind.to_be_bytes());
            put(&mut bytes, 14 + i * TAG_LEN, &tag.vlan.to_be_bytes());
        }
        Template { bytes, len: LEN + tags.len() * TAG_LEN }
    }

    /// Writes the header at the beginning of `frame`.
    #[inline(always)]
    pub(crate) fn write(&self, frame: &mut [u8], dst: Mac, kind: u16) {
        // Headers without tags are written from registers, because their length is known.
        match (self.bytes.first_chunk(), frame.first_chunk_mut::<LEN>()) {
            (Some(header), Some(place)) if self.len == LEN => {
                *place = *header;
                put(place, 0, &dst.0);
                put(place, LEN - 2, &kind.to_be_bytes());
            }
            _ => self.write_tagged(frame, dst, kind),
        }
    }

    fn write_tagged(&self, frame: &mut [u8], dst: Mac, kind: u16) {
        if let (Some(place), Some(header)) = (frame.get_mut(..self.len), self.bytes.get(..self.len)) {
            place.copy_from_slice(header);
            put(place, 0, &dst.0);
            put(place, self.len.saturating_sub(2), &kind.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_round_trip_with_every_kind_of_tags() {
        let (dst, src) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        for tags in [&[][..], &[Tag::customer(4094)], &[Tag::service(7), Tag::customer(1)]] {
            let mut frame = [0xa5; 64];
            let template = Template::new(src, tags);
            template.write(&mut frame, dst, kind::IPV6);
            let header = Header::read(&frame).unwrap();
            assert_eq!((header.dst, header.src, header.kind), (dst, src, kind::IPV6));
            assert_eq!((header.tags, header.len), (Tags::new(tags), 14 + 4 * tags.len()));
            assert!(frame[header.len..].iter().all(|b| *b == 0xa5));
            for cut in 0..header.len {
                assert!(Header::read(&frame[..cut]).is_none());
            }
        }
    }

    #[test]
    fn a_priority_tag_is_no_vlan() {
        let mut frame = [0; 64];
        Template::new(Mac([2; 6]), &[Tag { kind: Tag::CUSTOMER, vlan: 0 }]).write(
            &mut frame,
            Mac([4; 6]),
            kind::ARP,
        );
        frame[14] = 0xe0; // priority 7
        let header = Header::read(&frame).unwrap();
        assert_eq!((header.tags, header.kind, header.len), (Tags::default(), kind::ARP, 18));
    }
}
