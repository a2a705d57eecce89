//! One strict pass over a JSON text (RFC 8259), noting where the members of the envelope lie.
//!
//! A hand-written scanner rather than a deserializer, because it must refuse what `serde_json` lets pass when it
//! skips values (duplicate members, lone surrogates), must not judge the size of numbers (their exact decimal value
//! is kept elsewhere), and finds the members of `params` and `_meta` in the same pass, so that nothing is parsed twice.
use std::borrow::Cow;
use std::collections::HashSet;

use super::{Flaw, JsonError, Limits};

/// Where one member of an object lies in the text: the key without its quotes, and the value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub key: (u32, u32),
    pub escaped: bool,
    pub value: (u32, u32),
}

impl Member {
    /// The key with escapes resolved.
    pub fn key<'a>(&self, text: &'a [u8]) -> Cow<'a, str> {
        let raw = std::str::from_utf8(&text[self.key.0 as usize..self.key.1 as usize]).unwrap_or_default();
        if self.escaped { Cow::Owned(unescape(raw)) } else { Cow::Borrowed(raw) }
    }

    /// Counts from a place so many bytes further on.
    pub fn shift(&mut self, by: u32) {
        for at in [&mut self.key.0, &mut self.key.1, &mut self.value.0, &mut self.value.1] {
            *at -= by;
        }
    }

    /// Whether the key, escapes resolved, is `name`.
    pub fn is(&self, text: &[u8], name: &str) -> bool {
        if self.escaped {
            self.key(text) == name
        } else {
            &text[self.key.0 as usize..self.key.1 as usize] == name.as_bytes()
        }
    }
}

/// Which object of the envelope is being scanned; its members are noted.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Track {
    Root = 0,
    Params = 1,
    Meta = 2,
    Arguments = 3,
    Nothing = 4,
}

/// The members found: of the root, of `params`, of `params._meta`, of `params.arguments`.
pub(crate) type Found = [Vec<Member>; 4];

/// Checks `text` and notes the members of its root object and, with `envelope`, of `params`, and of `_meta` and
/// `arguments` therein.
pub(crate) fn scan(text: &str, limits: &Limits, envelope: bool) -> Result<Found, JsonError> {
    if text.len() > u32::MAX as usize {
        return Err(JsonError { flaw: Flaw::TooLong, offset: 0 });
    }
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        at: 0,
        limits,
        envelope,
        keys: Vec::new(),
        found: Default::default(),
    };
    scanner.blanks();
    scanner.value(0, Track::Root)?;
    scanner.blanks();
    if scanner.at < scanner.bytes.len() {
        return scanner.fail(Flaw::Trailing);
    }
    Ok(scanner.found)
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    limits: &'a Limits,
    envelope: bool,
    /// Keys of all open objects, innermost last; an object looks back to its own base only.
    keys: Vec<(u32, u32, bool)>,
    found: Found,
}

impl<'a> Scanner<'a> {
    fn fail<T>(&self, flaw: Flaw) -> Result<T, JsonError> {
        Err(JsonError { flaw, offset: self.at })
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn unexpected<T>(&self) -> Result<T, JsonError> {
        self.fail(if self.at < self.bytes.len() { Flaw::Syntax } else { Flaw::Truncated })
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            self.unexpected()
        }
    }

    fn value(&mut self, depth: usize, track: Track) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => {
                self.descend(depth)?;
                self.object(depth + 1, track)
            }
            Some(b'[') => {
                self.descend(depth)?;
                self.array(depth + 1)
            }
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => self.unexpected(),
        }
    }

    fn descend(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth >= self.limits.depth {
            return self.fail(Flaw::TooDeep(self.limits.depth));
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), JsonError> {
        for byte in word {
            self.expect(*byte)?;
        }
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), JsonError> {
        self.blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.blanks();
            self.value(depth, Track::Nothing)?;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.unexpected(),
            }
        }
    }

    fn object(&mut self, depth: usize, track: Track) -> Result<(), JsonError> {
        let base = self.keys.len();
        let mut many: Option<HashSet<Cow<'a, str>>> = None;
        self.blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.blanks();
            let key_at = self.at;
            if self.peek() != Some(b'"') {
                return self.unexpected();
            }
            let escaped = self.string()?;
            let key = (key_at as u32 + 1, self.at as u32 - 1);
            if self.limits.unique_members {
                self.note_key(base, &mut many, (key.0, key.1, escaped), key_at)?;
            }
            self.blanks();
            self.expect(b':')?;
            self.blanks();
            let start = self.at as u32;
            let mut member = Member { key, escaped, value: (start, start) };
            let child = match track {
                Track::Root if self.envelope && member.is(self.bytes, "params") => Track::Params,
                Track::Params if member.is(self.bytes, "_meta") => Track::Meta,
                Track::Params if member.is(self.bytes, "arguments") => Track::Arguments,
                _ => Track::Nothing,
            };
            self.value(depth, child)?;
            member.value.1 = self.at as u32;
            if track != Track::Nothing {
                self.found[track as usize].push(member);
            }
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    self.keys.truncate(base);
                    return Ok(());
                }
                _ => return self.unexpected(),
            }
        }
    }

    /// Refuses a key that the object already has. Small objects are compared in place; larger ones through a set,
    /// so that an object of a million members costs no more than its length.
    fn note_key(
        &mut self,
        base: usize,
        many: &mut Option<HashSet<Cow<'a, str>>>,
        key: (u32, u32, bool),
        key_at: usize,
    ) -> Result<(), JsonError> {
        const FEW: usize = 16;
        let text = self.text;
        let resolve = |(from, to, escaped): (u32, u32, bool)| -> Cow<'a, str> {
            let raw = &text[from as usize..to as usize];
            if escaped { Cow::Owned(unescape(raw)) } else { Cow::Borrowed(raw) }
        };
        let twice = match many {
            Some(set) => !set.insert(resolve(key)),
            None if self.keys.len() - base < FEW => {
                let new = resolve(key);
                let twice = self.keys[base..].iter().any(|old| resolve(*old) == new);
                self.keys.push(key);
                twice
            }
            None => {
                let mut set: HashSet<_> = self.keys[base..].iter().map(|old| resolve(*old)).collect();
                let twice = !set.insert(resolve(key));
                *many = Some(set);
                twice
            }
        };
        if twice { Err(JsonError { flaw: Flaw::Duplicate, offset: key_at }) } else { Ok(()) }
    }

    /// Steps over a string; says whether it holds escapes.
    fn string(&mut self) -> Result<bool, JsonError> {
        self.at += 1;
        let mut escaped = false;
        loop {
            self.plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(0..=0x1f) => return self.fail(Flaw::ControlInString),
                Some(_) => self.at += 1,
                None => return self.fail(Flaw::Truncated),
            }
        }
    }

    /// Steps over what means nothing inside a string, eight bytes at a time.
    fn plain(&mut self) {
        const ONES: u64 = u64::MAX / 0xff;
        const HIGHS: u64 = ONES << 7;
        // The high bit of each byte that is below `than`, which is at most 128. What a borrow marks wrongly is above a
        // byte that is marked rightly, and only the lowest one counts.
        let below = |word: u64, than: u64| word.wrapping_sub(ONES * than) & !word & HIGHS;
        let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        while let Some(eight) = self.bytes[self.at..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*eight);
            let special = below(word, 0x20) | is(word, b'"') | is(word, b'\\');
            if special != 0 {
                self.at += (special.trailing_zeros() / 8) as usize;
                return;
            }
            self.at += 8;
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                match self.hex4()? {
                    0xd800..=0xdbff => {
                        if self.bytes[self.at..].starts_with(b"\\u") {
                            self.at += 2;
                            if (0xdc00..=0xdfff).contains(&self.hex4()?) {
                                return Ok(());
                            }
                        }
                        Err(JsonError { flaw: Flaw::LoneSurrogate, offset: start })
                    }
                    0xdc00..=0xdfff => Err(JsonError { flaw: Flaw::LoneSurrogate, offset: start }),
                    _ => Ok(()),
                }
            }
            _ => self.unexpected(),
        }
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let mut value = 0;
        for _ in 0..4 {
            match self.peek().and_then(|b| (b as char).to_digit(16)) {
                Some(digit) => value = value * 16 + digit,
                None => return self.unexpected(),
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return self.unexpected();
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }
}

/// Resolves the escapes of a string's inside that was already checked.
pub(crate) fn unescape(inside: &str) -> String {
    let mut out = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(slash) = rest.find('\\') {
        out.push_str(&rest[..slash]);
        let code = rest.as_bytes()[slash + 1];
        rest = &rest[slash + 2..];
        out.push(match code {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = u32::from_str_radix(&rest[..4], 16).unwrap_or(0xfffd);
                rest = &rest[4..];
                let point = if (0xd800..0xdc00).contains(&high) {
                    let low = u32::from_str_radix(&rest[2..6], 16).unwrap_or(0xdc00);
                    rest = &rest[6..];
                    0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                } else {
                    high
                };
                char::from_u32(point).unwrap_or('\u{fffd}')
            }
            plain => plain as char,
        });
    }
    out.push_str(rest);
    out
}
