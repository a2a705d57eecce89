//! Mutations of inputs from a seed: the same on every machine.

/// Words that matter somewhere.
const WORDS: [&str; 40] = [
    "\n%%\n",
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\",
    "\\u0061",
    "\\ud800",
    "\\udc00",
    "null",
    "true",
    "1e400",
    "-0.0",
    "\n",
    "\r",
    "\r\n",
    "\t",
    " ",
    "\0",
    "ä",
    "😀",
    "%2e%2e",
    "%",
    "..",
    "/",
    "?",
    "#",
    "=?base64?",
    "?=",
    "data:",
    "{x}",
    "${env:X}",
    "idempotency_key",
    "\"id\":1",
    "https://",
    "0",
    "99999999999999999999",
];

/// A small generator of random numbers (splitmix64).
pub struct Mutator(u64);

impl Mutator {
    pub fn new(seed: u64) -> Mutator {
        Mutator(seed)
    }

    fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.random() % (n.max(1) as u64)).unwrap_or(0)
    }

    /// A range of `text`, mostly short.
    fn range(&mut self, text: &[u8]) -> std::ops::Range<usize> {
        let from = self.below(text.len() + 1);
        let most = if self.below(4) == 0 { text.len() } else { 12 };
        let to = (from + self.below(most + 1)).min(text.len());
        from..to
    }

    /// The next input: one of `all`, changed in one to four places.
    pub fn next(&mut self, all: &[Vec<u8>]) -> Vec<u8> {
        let mut text = all[self.below(all.len())].clone();
        for _ in 0..=self.below(4) {
            match self.below(8) {
                0 => {
                    let bit = 1 << self.below(8);
                    let at = self.below(text.len());
                    if let Some(byte) = text.get_mut(at) {
                        *byte ^= bit;
                    }
                }
                1 => {
                    let range = self.range(&text);
                    text.drain(range);
                }
                2 | 3 => {
                    let word = WORDS[self.below(WORDS.len())].bytes();
                    let range = self.range(&text);
                    let at = if self.below(2) == 0 { range.start..range.start } else { range };
                    text.splice(at, word);
                }
                4 => {
                    let range = self.range(&text);
                    let copy = text[range].to_vec();
                    let at = self.below(text.len() + 1);
                    text.splice(at..at, copy);
                }
                5 => {
                    let other = &all[self.below(all.len())];
                    let taken = other[self.range(other)].to_vec();
                    let range = self.range(&text);
                    text.splice(range, taken);
                }
                6 => {
                    let digit = b'0' + u8::try_from(self.below(10)).unwrap_or(0);
                    let at = self.below(text.len());
                    if let Some(byte) = text.get_mut(at) {
                        *byte = digit;
                    }
                }
                _ => {
                    let byte = u8::try_from(self.below(256)).unwrap_or(0);
                    let at = self.below(text.len() + 1);
                    text.insert(at, byte);
                }
            }
        }
        text
    }
}
