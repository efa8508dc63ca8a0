//! What is looked at of each packet before mqtt5 gets it, and what is wrong with some that it takes.

use mqtt5::protocol::v5::reason_codes::ReasonCode;

/// A packet that no client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offence {
    Malformed,
    Protocol,
}

impl Offence {
    pub(crate) const fn reason(self) -> ReasonCode {
        match self {
            Self::Malformed => ReasonCode::MalformedPacket,
            Self::Protocol => ReasonCode::ProtocolError,
        }
    }
}

const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;
const PUBREL: u8 = 6;
const PUBCOMP: u8 = 7;
const SUBSCRIBE: u8 = 8;
const SUBACK: u8 = 9;
const UNSUBSCRIBE: u8 = 10;
const UNSUBACK: u8 = 11;
const PINGRESP: u8 = 13;

/// Bits of the first byte of PUBLISH.
const RETAIN: u8 = 1;
const DUP: u8 = 8;

/// Longest topic, as its length has two bytes.
const LENGTH_BYTES: usize = 2;

/// Looks at packets as their bytes come in.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    place: Place,
    first: u8,
    /// What is left of the packet after its first bytes.
    left: usize,
    /// The beginning of what is left, as far as it is looked at.
    head: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    First,
    /// In the length; so many bits of it are there.
    Length(u32),
    Head,
    Rest,
}

/// A message whose beginning has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Publish {
    /// Whether the broker is to keep it.
    pub(crate) keeps: bool,
    /// Whether the broker is to keep nothing: it has no payload.
    pub(crate) forgets: bool,
}

impl Scanner {
    /// Looks at more bytes. Gives how many may go on before the packet that may not, if there is one.
    pub(crate) fn scan(
        &mut self,
        bytes: &[u8],
        mut publish: impl FnMut(Publish),
    ) -> Result<(), (usize, Offence)> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let wrong = |offence| (at, offence);
            match self.place {
                Place::First => {
                    self.first = *byte;
                    self.left = 0;
                    self.head.clear();
                    check_first(*byte).map_err(wrong)?;
                    self.place = Place::Length(0);
                    at += 1;
                }
                Place::Length(bits) => {
                    self.left |= usize::from(byte & 0x7F) << bits;
                    if byte & 0x80 == 0 {
                        self.place = if self.left == 0 {
                            Place::First
                        } else {
                            Place::Head
                        };
                        // Nothing is in it that could be looked at.
                        if self.left == 0 && self.kind() == PUBLISH {
                            return Err(wrong(Offence::Malformed));
                        }
                    } else if bits == 21 {
                        return Err(wrong(Offence::Malformed));
                    } else {
                        self.place = Place::Length(bits + 7);
                    }
                    at += 1;
                }
                Place::Head => {
                    let wanted = self.wanted();
                    if self.head.len() < wanted {
                        // The last byte of a packet that is not wanted does not go on.
                        self.head.push(*byte);
                        self.left -= 1;
                        let end = self.left == 0 || self.head.len() >= self.wanted();
                        if end {
                            self.check_head(&mut publish).map_err(wrong)?;
                            self.place = if self.left == 0 {
                                Place::First
                            } else {
                                Place::Rest
                            };
                        }
                        at += 1;
                    } else {
                        self.place = Place::Rest;
                    }
                }
                Place::Rest => {
                    let take = self.left.min(bytes.len() - at);
                    self.left -= take;
                    at += take;
                    if self.left == 0 {
                        self.place = Place::First;
                    }
                }
            }
        }
        Ok(())
    }

    const fn kind(&self) -> u8 {
        self.first >> 4
    }

    const fn qos(&self) -> u8 {
        (self.first >> 1) & 3
    }

    /// How many bytes of the head have to be there to look at it, as far as is known.
    fn wanted(&self) -> usize {
        match self.kind() {
            PUBACK..=PUBCOMP | SUBSCRIBE | UNSUBSCRIBE => 2,
            PUBLISH => {
                let Some(topic) = self.two(0) else {
                    return LENGTH_BYTES;
                };
                let id = if self.qos() > 0 { 2 } else { 0 };
                let properties = LENGTH_BYTES + usize::from(topic) + id;
                // The length of the properties has up to four bytes, of which the last is below 128.
                let length = self.head.get(properties..).unwrap_or_default();
                let ends = length.iter().position(|byte| byte & 0x80 == 0);
                match ends {
                    Some(last) => properties + last + 1,
                    None => properties + (length.len() + 1).min(4),
                }
            }
            _ => 0,
        }
    }

    /// Two bytes of the head as a number.
    fn two(&self, at: usize) -> Option<u16> {
        let bytes = self.head.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn check_head(&self, publish: &mut impl FnMut(Publish)) -> Result<(), Offence> {
        match self.kind() {
            PUBLISH => {
                let topic = usize::from(self.two(0).ok_or(Offence::Malformed)?);
                let mut properties = LENGTH_BYTES + topic;
                if self.qos() > 0 {
                    if self.two(properties).ok_or(Offence::Malformed)? == 0 {
                        return Err(Offence::Malformed);
                    }
                    properties += 2;
                }
                let length = self.head.get(properties..).unwrap_or_default();
                if length.last().is_none_or(|byte| byte & 0x80 != 0) {
                    return Err(Offence::Malformed);
                }
                let length = length
                    .iter()
                    .rev()
                    .fold(0_usize, |sum, byte| (sum << 7) | usize::from(byte & 0x7F));
                let payload = self.left.checked_sub(length).ok_or(Offence::Malformed)?;
                let retain = self.first & RETAIN != 0;
                publish(Publish {
                    keeps: retain && payload > 0,
                    forgets: retain && payload == 0,
                });
                Ok(())
            }
            PUBACK..=PUBCOMP | SUBSCRIBE | UNSUBSCRIBE => match self.two(0) {
                None => Err(Offence::Malformed),
                Some(0) => Err(Offence::Protocol),
                Some(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Whether a packet of a client may begin so.
const fn check_first(first: u8) -> Result<(), Offence> {
    let flags = first & 0x0F;
    match first >> 4 {
        CONNACK | SUBACK | UNSUBACK | PINGRESP => Err(Offence::Protocol),
        0 => Err(Offence::Malformed),
        PUBLISH => {
            let qos = (first >> 1) & 3;
            if qos == 3 || (qos == 0 && first & DUP != 0) {
                Err(Offence::Malformed)
            } else {
                Ok(())
            }
        }
        PUBREL | SUBSCRIBE | UNSUBSCRIBE if flags == 2 => Ok(()),
        PUBREL | SUBSCRIBE | UNSUBSCRIBE => Err(Offence::Malformed),
        _ if flags == 0 => Ok(()),
        _ => Err(Offence::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is seen of these bytes, however they are cut.
    fn scan(bytes: &[u8]) -> (Vec<bool>, Result<(), Offence>) {
        let whole = {
            let mut seen = Vec::new();
            let result = Scanner::default().scan(bytes, |publish| seen.push(publish.keeps));
            (seen, result.map_err(|(_, offence)| offence))
        };
        let mut seen = Vec::new();
        let mut scanner = Scanner::default();
        let mut result = Ok(());
        for byte in bytes {
            result = scanner
                .scan(&[*byte], |publish| seen.push(publish.keeps))
                .map_err(|(_, offence)| offence);
            if result.is_err() {
                break;
            }
        }
        assert_eq!(whole, (seen, result));
        whole
    }

    #[test]
    fn packets_of_clients_go_on() {
        for (bytes, seen) in [
            (&b"\xc0\x00\xe0\x00"[..], &[][..]),
            (b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x02c1", &[]),
            (b"\x82\x08\x00\x01\x00\x00\x02ab\x00", &[]),
            (b"\x40\x02\x00\x01\x62\x02\x00\x01", &[]),
            // Messages: of QoS 0, retained, without payload, with properties.
            (b"\x30\x05\x00\x01a\x00x", &[false]),
            (b"\x31\x05\x00\x01a\x00x", &[true]),
            (b"\x31\x04\x00\x01a\x00", &[false]),
            (b"\x33\x07\x00\x01a\x00\x01\x00x", &[true]),
            (b"\x3b\x06\x00\x01a\x00\x01\x00", &[false]),
            (b"\x33\x09\x00\x01a\x00\x01\x02\x01\x01x", &[true]),
            (b"\x33\x08\x00\x01a\x00\x01\x02\x01\x01\xc0\x00", &[false]),
            (
                b"\x31\x05\x00\x01a\x00x\x30\x05\x00\x01a\x00x",
                &[true, false],
            ),
        ] {
            assert_eq!(scan(bytes), (seen.to_vec(), Ok(())), "{bytes:?}");
        }
        // The length of the properties has two bytes.
        let mut long = b"\x31\x85\x01\x00\x01a\x80\x01".to_vec();
        long.extend([0x26; 128]);
        assert_eq!(scan(&long), (vec![false], Ok(())));
        long[1] += 1;
        long.push(b'x');
        assert_eq!(scan(&long), (vec![true], Ok(())));
    }

    #[test]
    fn packets_that_no_client_may_send_are_told() {
        use Offence::{Malformed, Protocol};
        for (bytes, offence) in [
            (&b"\x00\x00"[..], Malformed),
            (b"\x20\x03\x00\x00\x00", Protocol),
            (b"\x90\x04\x00\x01\x00\x00", Protocol),
            (b"\xb0\x04\x00\x01\x00\x00", Protocol),
            (b"\xd0\x00", Protocol),
            // Flags, and lengths.
            (b"\x36\x05\x00\x01a\x00x", Malformed),
            (b"\x38\x05\x00\x01a\x00x", Malformed),
            (b"\x80\x08\x00\x01", Malformed),
            (b"\xc1\x00", Malformed),
            (b"\xc0\xff\xff\xff\xff", Malformed),
            (b"\x30\x00", Malformed),
            (b"\x30\x01\x00", Malformed),
            (b"\x30\x03\x00\x01a", Malformed),
            (b"\x30\x04\x00\x01a\x01", Malformed),
            (b"\x30\x07\x00\x01a\xff\xff\xff\xff", Malformed),
            (b"\x82\x01\x00", Malformed),
            // No packet has the id 0.
            (b"\x32\x07\x00\x01a\x00\x00\x00x", Malformed),
            (b"\x82\x08\x00\x00\x00\x00\x02ab\x00", Protocol),
            (b"\xa2\x07\x00\x00\x00\x00\x02ab", Protocol),
            (b"\x40\x02\x00\x00", Protocol),
            (b"\x62\x02\x00\x00", Protocol),
        ] {
            assert_eq!(scan(bytes), (vec![], Err(offence)), "{bytes:?}");
        }
    }

    #[test]
    fn what_came_before_goes_on() {
        let mut scanner = Scanner::default();
        let result = scanner.scan(b"\xc0\x00\xd0\x00", |_| {});
        assert_eq!(result, Err((2, Offence::Protocol)));
        let mut scanner = Scanner::default();
        let result = scanner.scan(b"\xc0\x00\x82\x08\x00\x00\x00", |_| {});
        // The last byte of the id stays behind, so that the packet is never whole.
        assert_eq!(result, Err((5, Offence::Protocol)));
    }
}
