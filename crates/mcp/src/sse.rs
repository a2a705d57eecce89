//! Server-Sent Events (WHATWG HTML, "Server-sent events"): writing one-line events, and a tolerant incremental reader.
//! No `id:` lines are ever written: streams are not resumable in this revision, and clients that see ids try to resume.
use bytes::Bytes;

/// An event that carries one message, which must be on one line.
pub(crate) fn event(message: &[u8]) -> Bytes {
    debug_assert!(!message.contains(&b'\n'));
    let mut out = Vec::with_capacity(message.len() + 8);
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(message);
    out.extend_from_slice(b"\n\n");
    out.into()
}

/// A comment: opens a stream, and keeps it alive.
pub(crate) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// One event as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its type; `message` if none was given.
    pub kind: String,
    /// Its data lines, joined by line feeds.
    pub data: Vec<u8>,
}

/// Reads events from pieces of a stream, cut anywhere. LF, CR and CRLF end lines; a byte order mark, comments, `id`,
/// `retry` and unknown fields are skipped. An event without its closing blank line is not delivered.
#[derive(Debug, Default)]
pub struct Reader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    kind: Vec<u8>,
    after_cr: bool,
    started: bool,
}

impl Reader {
    /// Takes a piece, gives the events that it completed.
    pub fn push(&mut self, piece: &[u8]) -> Vec<Event> {
        let mut out = Vec::new();
        let mut rest = piece;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            match rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
                Some(end) => {
                    self.line.extend_from_slice(&rest[..end]);
                    self.after_cr = rest[end] == b'\r';
                    rest = &rest[end + 1..];
                    out.extend(self.end_line());
                }
                None => {
                    self.line.extend_from_slice(rest);
                    break;
                }
            }
        }
        out
    }

    /// Bytes held for the event that isn't complete.
    pub fn pending(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let mut line = &line[..];
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            let data = std::mem::take(&mut self.data);
            let kind = if kind.is_empty() { "message".into() } else { String::from_utf8_lossy(&kind).into() };
            return std::mem::take(&mut self.has_data).then_some(Event { kind, data });
        }
        let (field, value) = match line.iter().position(|b| *b == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.kind = value.to_vec(),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_dialect_cut_anywhere() {
        let text = b"\xef\xbb\xbf: hello\r\n\r\ndata: {\"a\":\r\ndata:1}\r\nid: 7\r\n\r\nevent: x\rdata:  two\r\r:\n\ndata\n\nretry: 1\n\ndata: cut";
        let expected = [("message", "{\"a\":\n1}"), ("x", " two"), ("message", "")];
        for step in 1..text.len() {
            let mut reader = Reader::default();
            let events: Vec<_> = text.chunks(step).flat_map(|piece| reader.push(piece)).collect();
            let seen: Vec<_> =
                events.iter().map(|e| (e.kind.as_str(), String::from_utf8_lossy(&e.data))).collect();
            assert_eq!(seen.len(), 3, "{seen:?}");
            for ((kind, data), (want_kind, want)) in seen.iter().zip(expected) {
                assert_eq!((*kind, &**data), (want_kind, want), "in pieces of {step}");
            }
            assert_eq!(reader.pending(), "data: cut".len());
        }
    }

    #[test]
    fn writes_what_it_reads() {
        let mut reader = Reader::default();
        assert!(reader.push(&COMMENT).is_empty());
        assert_eq!(reader.push(&event(b"{}")), [Event { kind: "message".into(), data: b"{}".to_vec() }]);
    }
}
