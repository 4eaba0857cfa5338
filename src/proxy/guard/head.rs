//! Where a request head ends, found as bytes arrive, without looking at a byte twice.

use memchr::memchr;

/// How far the search for the end of a head has come.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    /// Bytes looked at.
    seen: usize,
    /// Whether something other than line breaks has been seen.
    begun: bool,
    /// Bytes of a line break right before `seen`: nothing, `\n`, or `\n\r`.
    tail: Tail,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Tail {
    #[default]
    Text,
    Lf,
    LfCr,
}

/// What is known about a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Its end has not come yet.
    Partial,
    /// It is complete; there may be bytes after it.
    Complete,
    /// Its first byte cannot begin a request: another protocol, most likely TLS.
    NotHttp,
}

impl HeadScan {
    /// Looks at what is new in `bytes`, all that arrived since the head began. Empty lines before
    /// the request line do not count as its end; lines may end in a bare `\n`, as pingora's parser
    /// takes them.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Progress {
        let mut rest = bytes.get(self.seen..).unwrap_or_default();
        while let Some((byte, after)) = rest.split_first() {
            if self.begun && self.tail == Tail::Text {
                // Inside a line nothing counts but its end.
                let length = memchr(b'\n', rest).map(|at| at + 1);
                self.seen += length.unwrap_or(rest.len());
                let Some(length) = length else { break };
                rest = &rest[length..];
                self.tail = Tail::Lf;
                continue;
            }
            self.seen += 1;
            rest = after;
            match byte {
                b'\n' if self.begun => {
                    if self.tail != Tail::Text {
                        return Progress::Complete;
                    }
                    self.tail = Tail::Lf;
                }
                b'\r' if self.begun && self.tail == Tail::Lf => self.tail = Tail::LfCr,
                b'\r' | b'\n' if !self.begun => {}
                _ => {
                    if !self.begun && !byte.is_ascii_graphic() {
                        return Progress::NotHttp;
                    }
                    self.begun = true;
                    self.tail = Tail::Text;
                }
            }
        }
        Progress::Partial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Progress {
        HeadScan::default().advance(bytes)
    }

    #[test]
    fn a_head_ends_at_the_first_empty_line_however_lines_end() {
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n\r\n",
            "GET / HTTP/1.1\nA: b\n\n",
            "GET / HTTP/1.1\r\nA: b\n\r\n",
            "\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        ] {
            assert_eq!(whole(head.as_bytes()), Progress::Complete, "{head:?}");
            let cut = &head.as_bytes()[..head.len() - 1];
            assert_eq!(whole(cut), Progress::Partial, "{head:?} less one byte");
        }
        assert_eq!(whole(b"POST / HTTP/1.1\r\n\r\nbody"), Progress::Complete);
        assert_eq!(whole(b"GET / HTTP/1.1\r\nA: \r\r\n"), Progress::Partial);
    }

    #[test]
    fn the_cuts_between_reads_do_not_matter() {
        let head = b"\r\nGET / HTTP/1.1\r\nHost: a\n\r\n";
        let mut scan = HeadScan::default();
        for end in 1..head.len() {
            assert_eq!(scan.advance(&head[..end]), Progress::Partial, "after {end} bytes");
        }
        assert_eq!(scan.advance(head), Progress::Complete);
    }

    #[test]
    fn another_protocol_is_known_by_its_first_byte() {
        assert_eq!(whole(&[0x16, 3, 1, 2, 0]), Progress::NotHttp);
        assert_eq!(whole(b" GET / HTTP/1.1"), Progress::NotHttp);
        assert_eq!(whole(b"\0"), Progress::NotHttp);
        assert_eq!(whole("é".as_bytes()), Progress::NotHttp);
    }
}
