//! Git's lines with a length in front, gitprotocol-common(5).

use std::io::{self, Read};

/// The most that a line has, with its length.
const MAX: usize = 65_520;

/// One line, or what ends a section.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// Bytes, as they are.
    Line(Vec<u8>),
    /// `0000`.
    Flush,
}

/// Reads the next line.
pub(crate) fn read(from: &mut dyn Read) -> io::Result<Packet> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let malformed = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "a line of Git's protocol was expected",
        )
    };
    if !length.iter().all(u8::is_ascii_hexdigit) {
        return Err(malformed());
    }
    let length = std::str::from_utf8(&length)
        .ok()
        .and_then(|hex| usize::from_str_radix(hex, 16).ok())
        .ok_or_else(malformed)?;
    match length {
        0 => Ok(Packet::Flush),
        4..=MAX => {
            let mut line = vec![0; length - 4];
            from.read_exact(&mut line)?;
            Ok(Packet::Line(line))
        }
        _ => Err(malformed()),
    }
}

/// Appends `line` to `to`. Ours are short.
pub(crate) fn write(to: &mut Vec<u8>, line: &str) {
    to.extend_from_slice(format!("{:04x}{line}", line.len() + 4).as_bytes());
}

/// Appends the end of a section.
pub(crate) fn flush(to: &mut Vec<u8>) {
    to.extend_from_slice(b"0000");
}

/// The data of a stream that has progress and errors beside it.
pub(crate) struct SideBand<R> {
    from: R,
    line: Vec<u8>,
    at: usize,
    ended: bool,
}

impl<R: Read> SideBand<R> {
    pub(crate) const fn new(from: R) -> Self {
        Self {
            from,
            line: Vec::new(),
            at: 0,
            ended: false,
        }
    }
}

impl<R: Read> Read for SideBand<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.line.len() && !self.ended {
            match read(&mut self.from)? {
                Packet::Flush => self.ended = true,
                Packet::Line(line) => match line.first() {
                    Some(1) => {
                        self.line = line;
                        self.at = 1;
                    }
                    Some(2) | None => {}
                    Some(3) => {
                        let text = String::from_utf8_lossy(&line[1..]).trim().to_owned();
                        return Err(io::Error::other(format!("the server says: {text}")));
                    }
                    Some(_) => {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            "a side band that there is not",
                        ));
                    }
                },
            }
        }
        let rest = &self.line[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let mut bytes = Vec::new();
        write(&mut bytes, "done\n");
        write(&mut bytes, "");
        flush(&mut bytes);
        assert_eq!(bytes, b"0009done\n00040000");
        let mut from = bytes.as_slice();
        assert_eq!(read(&mut from).unwrap(), Packet::Line(b"done\n".to_vec()));
        assert_eq!(read(&mut from).unwrap(), Packet::Line(Vec::new()));
        assert_eq!(read(&mut from).unwrap(), Packet::Flush);
        assert_eq!(
            read(&mut from).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn refuses_other_lengths() {
        for bytes in ["0003", "<htm", "fff1", "+00a", "0001"] {
            let error = read(&mut bytes.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes}");
        }
        let error = read(&mut b"0009don".as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn takes_side_bands_apart() {
        let stream = b"0007\x01ab0008\x02xyz0005\x010006\x01c00009\x03oops".as_slice();
        let mut band = SideBand::new(stream);
        let mut text = String::new();
        assert_eq!(band.read_to_string(&mut text).unwrap(), 3);
        assert_eq!(text, "abc");

        let mut band = SideBand::new(b"0006\x01a0009\x03oops".as_slice());
        let error = band.read_to_string(&mut String::new()).unwrap_err();
        assert_eq!(error.to_string(), "the server says: oops");
        let mut band = SideBand::new(b"0006\x09a".as_slice());
        assert!(band.read_to_string(&mut String::new()).is_err());
    }
}
