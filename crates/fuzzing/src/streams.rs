//! Readers of streams: events and lines, cut anywhere.

use bytes::Bytes;
use mcp::server::{Line, LineReader};
use mcp::sse::{Event, Reader};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, ReadBuf};

/// Pieces of a text: of `step` bytes each, or, with 0, of lengths that the text itself gives.
fn pieces(text: &[u8], step: usize) -> Vec<&[u8]> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let length = if step > 0 { step } else { usize::from(rest[0] % 7) + 1 };
        let (piece, after) = rest.split_at(length.min(rest.len()));
        out.push(piece);
        rest = after;
    }
    out
}

/// The events of a whole stream (WHATWG HTML, "Interpreting an event stream"), read at once.
fn events(text: &[u8]) -> Vec<Event> {
    // CR, LF and CRLF all end a line: first one spelling, then lines.
    let mut plain = Vec::new();
    for (i, b) in text.iter().enumerate() {
        match b {
            b'\r' => plain.push(b'\n'),
            b'\n' if i > 0 && text[i - 1] == b'\r' => {}
            b => plain.push(*b),
        }
    }
    let mut lines: Vec<&[u8]> = plain.split(|b| *b == b'\n').collect();
    // What follows the last end of a line is none.
    lines.pop();
    let (mut out, mut kind, mut data) = (Vec::new(), Vec::new(), Vec::<&[u8]>::new());
    for (i, line) in lines.into_iter().enumerate() {
        let line = if i == 0 { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line) } else { line };
        if line.is_empty() {
            if !data.is_empty() {
                let kind = if kind.is_empty() { b"message".to_vec() } else { kind };
                let kind = String::from_utf8_lossy(&kind).into_owned();
                out.push(Event { kind, data: data.join(&b'\n') });
            }
            (kind, data) = (Vec::new(), Vec::new());
            continue;
        }
        let mut halves = line.splitn(2, |b| *b == b':');
        let (field, value) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => data.push(value),
            b"event" => kind = value.to_vec(),
            _ => {}
        }
    }
    out
}

/// A stream of events says the same however it is cut, and what the standard says.
///
/// # Panics
/// A promise is broken.
pub fn sse(data: &[u8]) {
    let wanted = events(data);
    for step in [0, 1, 3, data.len().max(1)] {
        let mut reader = Reader::default();
        let mut found = Vec::new();
        let mut read = 0;
        for piece in pieces(data, step) {
            found.extend(reader.push(piece));
            read += piece.len();
            assert!(reader.pending() <= read, "more is held than was read");
        }
        assert_eq!(found, wanted, "in pieces of {step}");
    }
}

/// A stream that gives its pieces one by one.
struct Pieces<'a>(std::collections::VecDeque<&'a [u8]>);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if let Some(piece) = self.0.pop_front() {
            let (now, later) = piece.split_at(piece.len().min(to.remaining()));
            to.put_slice(now);
            if !later.is_empty() {
                self.0.push_front(later);
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The lines of a whole stream.
fn whole_lines(text: &[u8], max: usize) -> Vec<Line> {
    let mut out = Vec::new();
    let mut all: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    let cut = all.pop().unwrap_or_default();
    for line in all {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > max {
            out.push(Line::TooLong);
        } else if line.iter().any(|b| !b.is_ascii_whitespace()) {
            out.push(Line::Whole(Bytes::copy_from_slice(line)));
        }
    }
    // A line that has no end yet is named as soon as no end could make it short enough.
    if cut.len() > max + 1 {
        out.push(Line::TooLong);
    }
    out
}

/// Lines are the same however the stream is cut, and none is longer than allowed.
///
/// # Panics
/// A promise is broken.
pub fn lines(data: &[u8]) {
    for max in [5, 40, 1 << 20] {
        let wanted = whole_lines(data, max);
        for step in [0, 1, data.len().max(1)] {
            let mut reader = LineReader::new(Pieces(pieces(data, step).into()), max);
            let mut found = Vec::new();
            loop {
                // The stream always has an answer, so one look at the future is enough.
                let next = pin!(reader.next()).poll(&mut Context::from_waker(Waker::noop()));
                match next {
                    Poll::Ready(Ok(Some(line))) => found.push(line),
                    Poll::Ready(Ok(None)) => break,
                    Poll::Ready(Err(e)) => panic!("{e}"),
                    Poll::Pending => panic!("it waits for what is there"),
                }
            }
            assert_eq!(found, wanted, "lines of {max}, in pieces of {step}");
        }
    }
}
