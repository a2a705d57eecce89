//! Lines of bounded length from a byte stream. What is longer than the limit is named once and skipped to its end, so
//! that one bad line never costs the connection.
use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes asked for at a time.
const PIECE: usize = 16 << 10;

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line without its end; never blank.
    Whole(Bytes),
    /// The line is longer than allowed; it is thrown away.
    TooLong,
}

/// Reads lines that end with a line feed, before which a carriage return is taken as a part of the end. Blank lines are
/// passed over. Bytes after the last line feed are no line: their sender was cut off.
#[derive(Debug)]
pub struct LineReader<R> {
    reader: R,
    max: usize,
    buffer: BytesMut,
    /// Bytes of the buffer that hold no line feed.
    searched: usize,
    skipping: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// `max`: longest line, in bytes without its end.
    pub fn new(reader: R, max: usize) -> LineReader<R> {
        LineReader { reader, max, buffer: BytesMut::new(), searched: 0, skipping: false }
    }

    /// The next line; `None` at the end. May be dropped and called again without losing anything.
    ///
    /// # Errors
    /// As the stream's.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.take() {
                return Ok(Some(line));
            }
            if self.buffer.capacity() - self.buffer.len() < PIECE / 4 {
                self.buffer.reserve(PIECE);
            }
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take(&mut self) -> Option<Line> {
        while let Some(at) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') {
            let line = self.buffer.split_to(self.searched + at + 1);
            self.searched = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() > self.max {
                return Some(Line::TooLong);
            }
            if !line.trim_ascii().is_empty() {
                // A copy, so that a short line doesn't hold on to the whole buffer.
                return Some(Line::Whole(Bytes::copy_from_slice(line)));
            }
        }
        self.searched = self.buffer.len();
        // One byte more may be the carriage return.
        if self.skipping || self.searched > self.max + 1 {
            self.buffer.clear();
            self.searched = 0;
            return (!std::mem::replace(&mut self.skipping, true)).then_some(Line::TooLong);
        }
        None
    }
}
